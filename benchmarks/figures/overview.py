"""The overview for readers who choose a tool: the default agent beside other tools, as a table and as a plot."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.figures.bars import by_gain
from benchmarks.figures.intervals import across_models, of_model
from benchmarks.figures.rows import Results, Series, shown_model
from benchmarks.figures.style import GREY, colour, new_figure, tidy
from benchmarks.figures.tables import bold, cell, legend, markdown, milliseconds

LEVELS = ("ort-none", "ort-basic", "ort-extended", "ort-all")
"""ONNX Runtime at its levels of optimisation, the last of which every speed-up is relative to."""
TITLES = {
    "ort-transformers": "ONNX Runtime's transformer optimiser", "openvino": "OpenVINO", "pytorch": "PyTorch",
    "inductor": "PyTorch Inductor", "cuda": "CUDA", "tensorrt": "TensorRT",
}  # fmt: skip
"""Peers as readers know them, where that is not their name on the command line."""
MARKS = "D^vosXP*"
"""Marks of the peers, in the order of their columns."""


def overview(results: Results, leader: Series) -> str:
    """Return a Markdown table of the default agent and the peers that have results, most gained first."""
    peers = _peers(results)
    table = [["model", "original", _ours(leader), *map(_title, peers)]]
    for model in by_gain(results, [leader]):
        own, found = of_model(results, leader, model), [of_model(results, peer, model) for peer in peers]
        best = max((e.value for e in (own, *found) if e is not None), default=0.0)
        cells = [bold(e, best) if e is not None else "" for e in found]
        shown = cell(own, results.of(leader, model), best)
        table.append([model, milliseconds(results.baseline_ms(model)), shown, *cells])
    means = [across_models(results, series) for series in (leader, *peers)]
    table.append(["geometric mean", "", *("" if mean is None else f"{mean.value:.2f}" for mean in means)])
    return "\n".join([markdown(table), legend(results)])


def draw_overview(results: Results, leader: Series) -> Figure:
    """Draw a bar per model for the default agent, from 1, the original, with its 95% interval, and a mark per peer."""
    peers, models = _peers(results), by_gain(results, [leader])
    figure = new_figure(8.0, 1.4 + 0.3 * len(models))
    axes = figure.subplots()
    for place, model in enumerate(models):
        own = of_model(results, leader, model)
        if own is not None:
            error = [[own.value - own.low], [own.high - own.value]]
            axes.barh(place, own.value - 1, 0.72, left=1.0, color=colour(0), xerr=error, error_kw={"lw": 0.9})
    marks = []
    for k, peer in enumerate(peers):
        found = [(e.value, place) for place, model in enumerate(models) if (e := of_model(results, peer, model))]
        style = {"ms": 5.5, "mec": "white", "mew": 0.6, "color": colour(k + 1), "label": _title(peer)}
        marks += axes.plot(*zip(*found, strict=True), MARKS[k % len(MARKS)], **style)  # type: ignore[arg-type]
    axes.axvline(1.0, color=GREY, lw=0.9)
    axes.set_yticks(range(len(models)), [shown_model(model) for model in models], fontsize=8)
    axes.set_xlabel("speed-up over ONNX Runtime, all optimisations", fontsize=9)
    axes.invert_yaxis()
    tidy(axes, "x")
    handles = [Patch(color=colour(0), label=_ours(leader)), *marks]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, fontsize=8, frameon=False)
    return figure


def _peers(results: Results) -> list[Series]:
    return [
        series
        for series in results.series("peer")
        if series.agent not in LEVELS and results.without_result(series) is None
    ]


def _ours(leader: Series) -> str:
    return f"RewriteGym, {leader.budget_s or 0.0:g} s"


def _title(peer: Series) -> str:
    return TITLES.get(peer.agent, peer.label)
