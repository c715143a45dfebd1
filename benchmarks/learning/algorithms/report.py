"""The results of the tabular benchmark as plain values, and as a page."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np

from agents.tabular.algorithms import COMPONENTS, Component
from benchmarks.figures.tables import markdown
from benchmarks.learning.algorithms.intervals import ScoreEstimate, difference, estimate
from benchmarks.learning.algorithms.rows import LearningResults
from benchmarks.learning.algorithms.scores import harm, possible, saved, score_groups, scored_families

LEAST_SEEDS = 5
"""Seeds without which no component is claimed to help: a bootstrap of fewer is too narrow."""


def summary(results: LearningResults) -> dict[str, Any]:
    """Return the scores of all algorithms and components as plain values; None for what cannot be told."""
    return {
        "possible": _rounded(possible(results)),
        "algorithms": [algorithm_summary(results, name) for name in results.algorithms],
        "components": [found for component in COMPONENTS if (found := component_summary(results, component))],
    }


def algorithm_summary(results: LearningResults, algorithm: str) -> dict[str, Any]:
    """Return the scores of one algorithm, and the steps and seconds of its trainings."""
    rows, groups = results.of(algorithm), score_groups(results, algorithm)
    steps, seconds = (float(np.mean([getattr(row, name) for row in rows])) for name in ("steps", "seconds"))
    return {
        "algorithm": algorithm, "trainings": len(rows), "score": _plain(estimate(groups)) if groups else None,
        "train_score": _rounded(float(np.mean([row.train_score for row in rows]))),
        "saved": _rounded(saved(results, algorithm)), "harm": _rounded(harm(results, algorithm)),
        "steps": round(steps), "seconds": round(seconds, 1),
        "steps_per_s": round(steps / seconds) if steps and seconds > 0.0 else None,
    }  # fmt: skip


def component_summary(results: LearningResults, component: Component) -> dict[str, Any] | None:
    """Return what a component is worth: the difference of the scores with and without it, over the trainings of the
    same splits and seeds; None where there is no such pair."""
    names = (component.with_it, component.without_it)
    both = set.intersection(*({(row.split, row.seed) for row in results.of(name)} for name in names))
    one, other = (score_groups(results, name, lambda row: (row.split, row.seed) in both) for name in names)
    if not one:
        return None
    found = difference(one, other)
    return {
        "component": component.name, "with": names[0], "without": names[1], "pairs": len(both),
        "difference": _plain(found), "claimed": found.is_positive and len({seed for _, seed in both}) >= LEAST_SEEDS,
    }  # fmt: skip


def tables(results: LearningResults) -> str:
    """Return what the documentation quotes: a table of algorithms and one of components, with a line that explains
    them."""
    found = summary(results)
    scored = [["algorithm", "score", "in training", "saved", "harm", "steps", "seconds", "steps/s"]]
    for one in found["algorithms"]:
        scored.append(
            [
                one["algorithm"], _shown(one["score"]), _number(one["train_score"]), _number(one["saved"], 4),
                _number(one["harm"], 4), f"{one['steps']:,}", f"{one['seconds']:.1f}", _number(one["steps_per_s"], 0),
            ]
        )  # fmt: skip
    parts = [markdown(scored)]
    if found["components"]:
        rows = [["component", "with", "without", "difference", "helps"]]
        for one in found["components"]:
            cells = [one["component"], one["with"], one["without"], _shown(one["difference"])]
            rows.append([*cells, "yes" if one["claimed"] else "not shown"])
        parts += [markdown(rows)]
    return "\n".join([*parts, _explanation(results, found)]) + "\n"


def page(results: LearningResults, plot: str | None = None) -> str:
    """Return a page of tables.

    Args:
        plot: name of the plot's file beside the page.
    """
    parts = [f"# Learning algorithms on the table of windows: {_title(results)}", tables(results)]
    parts += [f"![Score over steps of training]({plot})"] if plot else []
    parts += ["## Setting", _setting(results)]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _title(results: LearningResults) -> str:
    seeds, steps = len({row.seed for row in results.rows}), results.head["settings"]["steps"]
    return f"{seeds} {'seeds' if seeds > 1 else 'seed'}, {steps:,} steps"


def _explanation(results: LearningResults, found: dict[str, Any]) -> str:
    windows = sum(len(split.windows) for split in results.splits)
    scored = sum(len(scored_families(split)) for split in results.splits)
    return (
        f"{_title(results)}, {windows} held-out windows, of which {scored} are scored; {found['possible']:.4f} can be "
        f"saved in the mean. 95% intervals."
    )


def _setting(results: LearningResults) -> str:
    splits = ", ".join(f"{split.name}: {' '.join(dict.fromkeys(split.families))}" for split in results.splits)
    commits = sorted({row.commit for row in results.rows})
    settings = {name: value for name, value in results.head.items() if name in ("settings", "table")}
    rows = [["", ""], ["command", "`python -m benchmarks.learning.algorithms`"], ["held out", splits]]
    rows += [[name, f"`{json.dumps(value)}`"] for name, value in settings.items()]
    rows += [["machine", str(results.head["machine"].get("cpu", ""))], ["commits", ", ".join(commits)]]
    rows += [["versions", ", ".join(f"{name} {version}" for name, version in results.head["versions"].items())]]
    return markdown(rows)


def _plain(found: ScoreEstimate) -> dict[str, float | None]:
    return {"value": _rounded(found.value), "low": _rounded(found.low), "high": _rounded(found.high)}


def _rounded(value: float) -> float | None:
    return None if math.isnan(value) else round(value, 4)


def _shown(found: dict[str, float] | None) -> str:
    return "-" if found is None else str(ScoreEstimate(**found))


def _number(value: float | None, digits: int = 2) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
