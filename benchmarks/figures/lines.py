"""Lines: performance profiles, and the speed-up over the time of the search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from benchmarks.figures.intervals import Floats, share_reaching
from benchmarks.figures.rows import Results, Row, Series
from benchmarks.figures.style import GREY, legend_label, line_style, log_seconds, new_figure, places, tidy


def draw_profiles(results: Results) -> Figure:
    """Draw the share of models on which a series is at least so many times as fast as the original; agents on the left,
    peers beside the default agent on the right."""
    agents, peers, leader = results.series("agent"), results.series("peer"), results.leader()
    panels = [("agents", agents)] if agents else []
    if peers:
        panels.append((f"peers beside {leader.label}" if leader else "peers", [*([leader] if leader else []), *peers]))
    figure = new_figure(5.2 * max(1, len(panels)), 3.9)
    for axes, (title, columns) in zip(figure.subplots(1, max(1, len(panels)), squeeze=False)[0], panels, strict=False):
        factors = _factors(results, columns)
        for series in columns:
            shares = share_reaching(results, series, factors)
            axes.plot(factors, shares, label=legend_label(results, series), **line_style(places(results)[series]))
        axes.axvline(1.0, color=GREY, lw=0.9)
        axes.set(xlabel="at least x times as fast as the original", ylabel="share of models", ylim=(-0.02, 1.03))
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, 0))
        axes.set_title(title, fontsize=10)
        axes.legend(fontsize=7.5, frameon=False, loc="upper right")
        tidy(axes, "both")
    return figure


def _factors(results: Results, columns: Sequence[Series]) -> Floats:
    rows = [row for series in columns for row in results.of(series)]
    known = [row.speedup for row in rows if row.counts and row.speedup is not None]
    return np.linspace(min([0.9, *known]) - 0.02, max([1.2, *known]) * 1.02, 600)


def has_curves(results: Results) -> bool:
    """Return whether a run tells its speed-up over time."""
    return any(row.curve for row in results.rows if row.kind == "agent")


def draw_over_time(results: Results) -> Figure:
    """Draw the best speed-up so far by a search's own measurements, as geometric means over models and seeds.

    Runs that tell no curve are left out, and the legend says over how many models the others are.
    """
    figure = new_figure(6.2, 3.9)
    axes = figure.subplots()
    for series in results.series("agent"):
        rows = [row for row in results.of(series) if row.curve]
        if rows:
            _draw_curve(axes, rows, series, results)
    axes.set(xlabel="seconds of search", ylabel="best speed-up so far")
    log_seconds(axes)
    axes.set_title("geometric mean over models, as measured by the searches themselves", fontsize=9)
    axes.axhline(1.0, color=GREY, lw=0.9)
    axes.legend(fontsize=8, frameon=False, loc="upper left")
    tidy(axes, "both")
    return figure


def _draw_curve(axes: Axes, rows: Sequence[Row], series: Series, results: Results) -> None:
    end = max(second for row in rows for second, _ in row.curve)
    seconds = np.geomspace(1.0, max(2.0, end, series.budget_s or 0.0), 300)
    models = list(dict.fromkeys(row.model for row in rows))
    by_model = [np.mean([_best_at(row, seconds) for row in rows if row.model == model], axis=0) for model in models]
    label = series.label if len(models) == len(results.models) else f"{series.label} ({len(models)} models)"
    axes.plot(seconds, np.exp(np.mean(by_model, axis=0)), label=label, **line_style(places(results)[series]))


def _best_at(row: Row, seconds: Floats) -> Floats:
    """Return the logarithm of the best speed-up that a run knows at each second; 0 before its first."""
    moments, speedups = zip(*sorted(row.curve), strict=True)
    best = np.concatenate([[1.0], np.maximum.accumulate(np.maximum(speedups, 1.0))])
    known: Floats = np.log(best[np.searchsorted(moments, seconds, side="right")])
    return known
