"""The heat map of rules by model, and search times by agent."""

from __future__ import annotations

from statistics import median

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure

from benchmarks.figures.rows import Results, Series, shown_model
from benchmarks.figures.style import GREY, colour, log_seconds, new_figure, places, tidy

MOST_RULES = 28
"""Rows of the heat map: the rules that are used on most models, then those with most sites."""


def rule_sites(results: Results, series: Series) -> dict[str, dict[str, float]]:
    """Return the mean number of sites over a series' runs that count, by rule and model; rules used most come first."""
    found: dict[str, dict[str, float]] = {}
    for model in results.models:
        rows = [row for row in results.of(series, model) if row.counts]
        for row in rows:
            for rule, sites in row.sites.items():
                by_model = found.setdefault(rule, {})
                by_model[model] = by_model.get(model, 0.0) + sites / len(rows)
    return dict(sorted(found.items(), key=lambda entry: (-len(entry[1]), -sum(entry[1].values()))))


def draw_rules(results: Results, series: Series) -> Figure:
    """Draw the sites at which a series' results use each rule, by model."""
    found, models = rule_sites(results, series), results.models
    rules = list(found)[:MOST_RULES]
    sites = np.array([[found[rule].get(model, np.nan) for model in models] for rule in rules])
    figure = new_figure(2.6 + 0.46 * len(models), 1.5 + 0.2 * len(rules))
    axes = figure.subplots()
    axes.imshow(sites, cmap="Blues", norm=LogNorm(0.2, max(2.0, np.nanmax(sites))), aspect="auto")
    dark = np.sqrt(max(2.0, np.nanmax(sites)))
    for i, j in zip(*np.nonzero(~np.isnan(sites)), strict=True):
        text = f"{sites[i, j]:.0f}" if sites[i, j] >= 1 else "<1"
        axes.text(j, i, text, ha="center", va="center", fontsize=6, color="white" if sites[i, j] > dark else "black")
    axes.set_xticks(
        range(len(models)), map(shown_model, models), rotation=40, ha="right", rotation_mode="anchor", fontsize=8
    )
    axes.set_yticks(range(len(rules)), rules, fontsize=7)
    left_out = f"; {len(found) - len(rules)} rules used less are left out" if len(found) > len(rules) else ""
    title = f"sites of each rule in the results of {series.label}: mean over runs, below 1 where only some use it"
    axes.set_title(title + left_out.replace(";", "\n", 1), fontsize=8)
    tidy(axes, "")
    return figure


def draw_search_times(results: Results) -> Figure:
    """Draw the seconds of every search, a dot each, with the median of each agent; a search that failed is a cross."""
    timed = [s for s in results.series("agent") if any(row.seconds is not None for row in results.of(s))]
    figure = new_figure(6.4, 1.2 + 0.36 * len(timed))
    axes, rng = figure.subplots(), np.random.default_rng(0)
    for k, series in enumerate(timed):
        taken = [(row.seconds, row.counts) for row in results.of(series) if row.seconds is not None]
        for mark, wanted in (("o", True), ("x", False)):
            seconds = [second for second, counts in taken if counts == wanted]
            heights = k + rng.uniform(-0.25, 0.25, len(seconds))
            axes.plot(seconds, heights, mark, ms=4, alpha=0.6, color=colour(places(results)[series]))
        middle = median(second for second, _ in taken)
        axes.plot([middle, middle], [k - 0.34, k + 0.34], color="black", lw=1.6)
    budgets = sorted({s.budget_s for s in timed if s.budget_s is not None})
    for budget in budgets:
        axes.axvline(budget, color=GREY, lw=0.9, ls="--")
    if budgets and budgets[-1] > 4 * budgets[0]:
        log_seconds(axes)
    else:
        axes.set_xlim(left=0)
    axes.set_yticks(range(len(timed)), [series.label for series in timed])
    axes.set_ylim(len(timed) - 0.4, -0.6)
    axes.set_xlabel("seconds of search: a dot per run, medians in black, budgets dashed")
    tidy(axes, "x")
    return figure
