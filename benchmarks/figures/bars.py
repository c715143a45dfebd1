"""Grouped bars: the speed-up of every series on every model, with its 95% interval."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from benchmarks.figures.intervals import SpeedupEstimate, across_models, of_model
from benchmarks.figures.rows import Results, Series, shown_model
from benchmarks.figures.style import GREY, bar_style, colour, legend_label, new_figure, places, tidy

MEAN = "geometric\nmean"
BARS_A_ROW = 64
"""Bars that a row of the figure has room for; more models go into further rows."""
MOST_LABELS = 8
"""Labels in a row of the legend."""


def draw_speedups(results: Results, columns: Sequence[Series]) -> Figure:
    """Draw bars from 1, the original: models sorted by the first series that ran on them, their mean at the end.

    A cross at 1 is a series that failed on a model, a missing bar one that did not run on it. A series that failed on
    all models stands in the legend alone.
    """
    named = columns
    columns = [series for series in columns if results.without_result(series) is None] or columns
    groups = [*by_gain(results, columns), MEAN]
    rows = math.ceil(len(groups) * len(columns) / BARS_A_ROW) or 1
    a_row = math.ceil(len(groups) / rows)
    parts = [groups[k * a_row : (k + 1) * a_row] for k in range(rows)]
    ranges = [_range(results, part, columns) for part in parts]
    heights = [high - low for low, high in ranges]
    inches = [max(1.2, 2.6 * height / max(heights)) for height in heights]
    figure = new_figure(max(5.0, 1.2 + a_row * (0.35 + 0.13 * len(columns))), 0.8 + sum(inches) + 0.4 * rows)
    cells = figure.subplots(rows, 1, squeeze=False, height_ratios=inches)[:, 0]
    for axes, part, ends in zip(cells, parts, ranges, strict=True):
        _draw_row(axes, results, part, columns, a_row)
        axes.set_ylim(*ends)
    figure.supylabel("speed-up over ONNX Runtime, all optimisations", fontsize=9)
    handles = [Patch(**bar_style(places(results)[s]), label=legend_label(results, s)) for s in named]
    figure.legend(handles=handles, loc="outside upper center", ncols=_even(len(handles)), fontsize=8, frameon=False)
    return figure


def _even(labels: int) -> int:
    """Return the columns of a legend whose rows are about equally long."""
    return math.ceil(labels / math.ceil(labels / MOST_LABELS))


def _range(results: Results, groups: Sequence[str], columns: Sequence[Series]) -> tuple[float, float]:
    """Return the ends of the axis that hold all intervals of some models, and the original."""
    found = [e for group in groups for series in columns if (e := _estimate(results, series, group)) is not None]
    low, high = min([1.0, *(e.low for e in found)]), max([1.05, *(e.high for e in found)])
    return low - 0.06 * (high - low), high + 0.06 * (high - low)


def by_gain(results: Results, columns: Sequence[Series]) -> list[str]:
    """Return the models, those first on which the first series that ran there gains most."""

    def gain(model: str) -> float:
        return next((e.value for s in columns if (e := of_model(results, s, model)) is not None), 0.0)

    return sorted(results.models, key=lambda model: -gain(model))


def _draw_row(axes: Axes, results: Results, groups: Sequence[str], columns: Sequence[Series], width: int) -> None:
    step, place_of = 0.84 / len(columns), places(results)
    for k, series in enumerate(columns):
        spots = [group + step * (k - (len(columns) - 1) / 2) for group in range(len(groups))]
        found = [_estimate(results, series, group) for group in groups]
        known = [(spot, e) for spot, e in zip(spots, found, strict=True) if e is not None]
        axes.bar(
            [spot for spot, _ in known], [e.value - 1 for _, e in known], 0.92 * step, bottom=1.0,
            yerr=[[e.value - e.low for _, e in known], [e.high - e.value for _, e in known]],
            error_kw={"lw": 0.8, "ecolor": "#222222"}, **bar_style(place_of[series]),
        )  # fmt: skip
        failed = [
            spot for spot, e, group in zip(spots, found, groups, strict=True)
            if e is None and (results.of(series) if group == MEAN else results.of(series, group))
        ]  # fmt: skip
        axes.plot(failed, [1.0] * len(failed), "x", ms=5, mew=1.4, color=colour(place_of[series]))
    axes.axhline(1.0, color=GREY, lw=0.9)
    axes.set_xlim(-0.6, width - 0.4)
    axes.set_xticks(range(len(groups)), [shown_model(group).replace("-", "-\n", 1) for group in groups], fontsize=8)
    axes.tick_params(axis="x", length=0)
    tidy(axes)
    axes.spines["bottom"].set_visible(False)


def _estimate(results: Results, series: Series, group: str) -> SpeedupEstimate | None:
    return across_models(results, series) if group == MEAN else of_model(results, series, group)
