"""The plot of learning curves: scores in held-out windows over steps of training."""

from __future__ import annotations

import io
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures.style import DPI, GREY, line_style, new_figure, tidy
from benchmarks.learning.algorithms.intervals import ScoreEstimate, estimate
from benchmarks.learning.algorithms.rows import LearningResults
from benchmarks.learning.algorithms.scores import score_groups
from graph_rewrite.system.atomic_files import replace_file

DRAWS = 400
_ABLATION = "ppo-"
"""Algorithms that begin so are drawn beside PPO, on the right."""


def curve(results: LearningResults, algorithm: str) -> list[tuple[int, ScoreEstimate]]:
    """Return steps and scores of an algorithm, from before training to its end; one point for a baseline. Points that
    not all of its trainings have are left out."""
    rows = results.of(algorithm)
    if not all(row.curve for row in rows):
        groups = score_groups(results, algorithm)
        return [(0, estimate(groups, DRAWS))] if groups else []
    found = []
    for number in range(min(len(row.curve) for row in rows)):
        groups = score_groups(results, algorithm, returns=lambda row, number=number: row.curve[number][2])  # type: ignore[misc]
        if groups:
            found.append((rows[0].curve[number][0], estimate(groups, DRAWS)))
    return found


def draw_curves(results: LearningResults) -> Figure:
    """Draw the interquartile mean of the score over steps, with 95% intervals: algorithms on the left, variants of PPO
    on the right."""
    names = results.algorithms
    panels = [[name for name in names if not name.startswith(_ABLATION)]]
    variants = [name for name in names if name.startswith(_ABLATION)]
    if variants:
        panels.append([*(["ppo"] if "ppo" in names else []), *variants])
    figure = new_figure(5.4 * len(panels), 3.9)
    for axes, shown in zip(figure.subplots(1, len(panels), squeeze=False, sharey=True)[0], panels, strict=True):
        for place, name in enumerate(shown):
            _draw(axes, results, name, place)
        axes.set(xlabel="steps of training", ylabel="score in held-out windows")
        axes.axhline(0.0, color=GREY, lw=0.9)
        axes.legend(fontsize=7.5, frameon=False, loc="best")
        tidy(axes, "both")
    return figure


def save_curves(results: LearningResults, path: Path) -> None:
    """Write the plot as PNG.

    Raises:
        OSError: it cannot be written.
    """
    stream = io.BytesIO()
    options = {"optimize": True}
    draw_curves(results).savefig(stream, dpi=DPI, format="png", metadata={"Software": None}, pil_kwargs=options)
    replace_file(path, stream.getvalue())


def _draw(axes: Axes, results: LearningResults, name: str, place: int) -> None:
    points, style = curve(results, name), line_style(place)
    if not points:
        return
    if len(points) == 1:
        end = max([1, *(row.steps for row in results.rows)])
        points = [(0, points[0][1]), (end, points[0][1])]
    steps = [at for at, _ in points]
    axes.plot(steps, [score.value for _, score in points], label=name, **style)
    low, high = ([getattr(score, side) for _, score in points] for side in ("low", "high"))
    axes.fill_between(steps, low, high, color=style["color"], alpha=0.13, linewidth=0)
