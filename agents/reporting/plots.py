"""Plots of comparisons and trainings, out of their `result.json`: one PNG per question, saved in the run's folder."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

Entry = Mapping[str, Any]
"""An entry of `results`: an agent's run."""
Summary = Mapping[str, Any]
MOST_RULES = 40
"""Rows of the heat map at most; the rules with the most sites are shown."""


def save_plots(summary: Summary, folder: Path) -> list[Path]:
    """Save every plot of a comparison; files are replaced as a whole.

    `speedups.png` (bars per agent), `rules.png` (heat map of rule use; missing where no rule was used),
    `latency.png` (best latency over time and over measurements), `optimization-time.png`, `egraph.png` (size and best
    cost over rule applications; missing where no agent built an e-graph).

    Returns:
        The files written; none where `summary` holds no results.
    """
    entries: list[Entry] = list(summary["results"])
    if not entries:
        return []
    plots = {
        "speedups.png": draw_speedups,
        "rules.png": draw_rules,
        "latency.png": draw_latency,
        "optimization-time.png": draw_optimization_time,
        "egraph.png": draw_growth,
    }
    written = []
    for name, draw in plots.items():
        if draw is draw_rules and not any(entry["rule_histogram"] for entry in entries):
            continue
        if draw is draw_growth and not any(entry.get("growth") for entry in entries):
            continue
        written.append(_saved(draw(summary), folder / name))
    return written


def save_learning_curve(training: Mapping[str, Any], folder: Path) -> Path | None:
    """Save `learning-curve.png`: rewards, and the best speed-up where there is one, over timesteps.

    Args:
        training: `training` of a `result.json`.

    Returns:
        The file; None where no episode ended.
    """
    return _saved(draw_learning_curve(training), folder / "learning-curve.png") if training["curve"] else None


def draw_learning_curve(training: Mapping[str, Any]) -> Figure:
    """Draw the mean reward of the last episodes over timesteps, and beside it the best speed-up so far, where there is
    one. `axes` of the training names the first two otherwise."""
    steps, rewards, speedups = zip(*training["curve"], strict=True)
    counted, earned = training.get("axes", ("timesteps", "episode reward, mean of the last ones"))
    curves = [(rewards, earned)]
    if max(speedups) > 1.0:
        curves.append((speedups, "best speed-up so far"))
    figure = Figure(figsize=(4.5 * len(curves), 3.5), layout="constrained")
    for axes, (values, label) in zip(figure.subplots(1, len(curves), squeeze=False)[0], curves, strict=True):
        axes.plot(steps, values, ".-" if len(steps) < 50 else "-")
        axes.set(xlabel=counted, ylabel=label)
    return figure


def _saved(figure: Figure, path: Path) -> Path:
    """Save a figure; the file is replaced as a whole."""
    partial = path.with_name(f".{path.name}")
    figure.savefig(partial, dpi=120, format="png")
    return partial.replace(path)


def draw_speedups(summary: Summary) -> Figure:
    """A bar per agent: the median over its runs, from the lowest to the highest end of their 95% intervals."""
    groups = by_agent(summary["results"])
    figure, axes = _figure(1.5 + 1.1 * len(groups))
    for place, entries in enumerate(groups.values()):
        middle = statistics.median(entry["speedup"] for entry in entries)
        low = min(entry["speedup_ci95"][0] for entry in entries)
        high = max(entry["speedup_ci95"][1] for entry in entries)
        error = [[max(0.0, middle - low)], [max(0.0, high - middle)]]
        axes.bar(place, middle, 0.7, yerr=error, capsize=3, color=f"C{place}")
        axes.annotate(f"{middle:.3f}", (place, middle), (0, 12), textcoords="offset points", ha="center", fontsize=8)
    axes.axhline(1.0, color="grey", lw=0.8)
    axes.margins(y=0.15)
    _label_agents(axes, groups)
    axes.set(title=_title(summary), ylabel="speed-up over ORT_ENABLE_ALL")
    return figure


def draw_rules(summary: Summary) -> Figure:
    """Sites per rule (rows) and agent (columns), the mean over the agent's runs."""
    groups = by_agent(summary["results"])
    rules, use = rule_use(groups)
    figure, axes = _figure(3.5 + 0.9 * len(groups), 1.2 + 0.28 * len(rules))
    image = axes.imshow(np.log1p(use), aspect="auto", cmap="viridis")
    for row, column in np.ndindex(use.shape):
        if use[row, column]:
            bright = np.log1p(use[row, column]) > 0.6 * np.log1p(use.max())
            axes.text(
                column, row, f"{use[row, column]:g}", ha="center", va="center", fontsize=7,
                color="black" if bright else "white",
            )  # fmt: skip
    axes.set_yticks(range(len(rules)), rules, fontsize=7)
    _label_agents(axes, groups)
    axes.set_title(f"{_title(summary)}: sites rewritten per rule", fontsize=9)
    figure.colorbar(image, ax=axes, label="log(1 + sites)")
    return figure


def rule_use(groups: Mapping[str, Sequence[Entry]]) -> tuple[list[str], np.ndarray[Any, np.dtype[np.float64]]]:
    """(rules, sites [rules, agents]): mean sites per run, most used rules first, at most `MOST_RULES`."""
    total: Counter[str] = Counter()
    for entries in groups.values():
        for entry in entries:
            total.update(entry["rule_histogram"])
    rules = [rule for rule, _ in total.most_common(MOST_RULES)]
    use = [
        [statistics.fmean(entry["rule_histogram"].get(rule, 0) for entry in entries) for entries in groups.values()]
        for rule in rules
    ]
    return rules, np.array(use, dtype=np.float64).reshape(len(rules), len(groups))


def draw_latency(summary: Summary) -> Figure:
    """Best screened latency so far, over seconds and over measurements; a line per run in which one is known, a colour
    per agent."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    over_time, over_measurements = figure.subplots(1, 2, sharey=True)
    for place, (agent, entries) in enumerate(by_agent(summary["results"]).items()):
        for k, entry in enumerate(one for one in entries if one["latency_ms"] is not None):
            label = agent if k == 0 else None
            for axes, spent in ((over_time, "seconds"), (over_measurements, "measurements")):
                xs, ys = best_so_far(entry, spent)
                axes.step(xs, ys, where="post", color=f"C{place}", alpha=0.8, label=label)
    over_time.set(xlabel="seconds", ylabel="best latency so far, ms (screened)")
    over_measurements.set(xlabel="measurements")
    over_time.legend(fontsize=7)
    figure.suptitle(_title(summary), fontsize=9)
    return figure


def best_so_far(entry: Entry, spent: str) -> tuple[list[float], list[float]]:
    """(what was spent, best latency in milliseconds) at the start, at every improvement and at the end of a run.

    The run begins at the original's latency; improvements below it count as none, since the original is kept then.

    Args:
        spent: `seconds` or `measurements`.
    """
    original_ms = entry["latency_ms"] * entry["speedup"]
    xs, ys = [0.0], [original_ms]
    for point in entry["improvements"]:
        # By the ratio, which was measured in pairs; milliseconds alone drift with the machine.
        latency = original_ms / max(1.0, point["speedup"])
        if latency < ys[-1]:
            xs.append(float(point[spent]))
            ys.append(latency)
    return [*xs, float(entry[spent])], [*ys, ys[-1]]


def draw_optimization_time(summary: Summary) -> Figure:
    """Seconds that each agent searched: the median over its runs, and every run as a point."""
    groups = by_agent(summary["results"])
    figure, axes = _figure(1.5 + 1.1 * len(groups))
    for place, entries in enumerate(groups.values()):
        seconds = [entry["seconds"] for entry in entries]
        axes.bar(place, statistics.median(seconds), 0.7, color=f"C{place}")
        axes.plot([place] * len(seconds), seconds, "k.", ms=4)
    _label_agents(axes, groups)
    axes.set(title=_title(summary), ylabel="optimisation time, s")
    return figure


def draw_growth(summary: Summary) -> Figure:
    """Size of the e-graph and least cost in it over rule applications, a colour per agent, as figure 2 of Hartmann et
    al., PACT'24."""
    figure = Figure(figsize=(9.0, 3.6), layout="constrained")
    sizes, costs = figure.subplots(1, 2)
    for place, (agent, entries) in enumerate(by_agent(summary["results"]).items()):
        grown = [entry["growth"] for entry in entries if entry.get("growth")]
        for k, points in enumerate(grown):
            for axes, name in ((sizes, "nodes"), (costs, "cost_ms")):
                axes.step(
                    range(len(points)), [point[name] for point in points], where="post", color=f"C{place}", lw=1.2,
                    label=agent if k == 0 else None,
                )  # fmt: skip
    sizes.set(title=_title(summary), xlabel="rules applied", ylabel="e-nodes")
    costs.set(xlabel="rules applied", ylabel="least cost, ms (sum of operators)")
    sizes.legend(fontsize=8)
    return figure


def by_agent(entries: Sequence[Entry]) -> dict[str, list[Entry]]:
    """Runs by agent, in the order of their first."""
    groups: dict[str, list[Entry]] = {}
    for entry in entries:
        groups.setdefault(str(entry["agent"]), []).append(entry)
    return groups


def _figure(width: float, height: float = 3.6) -> tuple[Figure, Axes]:
    # Not pyplot, which would keep every figure and choose a window system.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _label_agents(axes: Axes, groups: Mapping[str, object]) -> None:
    names = [name.replace(":", ":\n").replace(",", ",\n") for name in groups]
    axes.set_xticks(range(len(groups)), names, fontsize=8)


def _title(summary: Summary) -> str:
    return f"{str(summary['model']).removeprefix('zoo://')} on {summary['provider']}"
