"""Scores of trainings: the share of a window that a policy saves, over the largest share that can be saved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from agents.tabular.game import Floats
from benchmarks.learning.algorithms.intervals import ScoreGroup
from benchmarks.learning.algorithms.rows import LearningResults, ScoredWindows, TrainingRow

LEAST_OPTIMUM = 0.02
"""Share that can be saved in a window from which on it is scored: with less, nothing is at stake but noise."""
LEAST_SCORE = -1.0
"""Score below which a loss counts as this."""

ReturnsOf = Callable[[TrainingRow], Sequence[float]]


def normalised(returns: Sequence[float] | Floats, optimum: Sequence[float] | Floats) -> Floats:
    """Return the scores of the windows in which something can be saved: 1 for the best chain, 0 for none, below 0 for a
    loss.

    Args:
        returns: [..., windows], shares that are saved.
        optimum: [windows], the largest shares.
    """
    best = np.asarray(optimum, dtype=np.float64)
    scored = best >= LEAST_OPTIMUM
    found: Floats = np.maximum(np.asarray(returns, dtype=np.float64)[..., scored] / best[scored], LEAST_SCORE)
    return found


def score_groups(
    results: LearningResults,
    algorithm: str,
    chosen: Callable[[TrainingRow], bool] = lambda row: True,
    returns: ReturnsOf = lambda row: row.returns,
) -> list[ScoreGroup]:
    """Return the scores of an algorithm, a group for each split that has rows and windows to score.

    Args:
        chosen: tells whether a row counts; by default all do.
        returns: what of a row is scored; by default what its policy saves in the end.
    """
    found = []
    for split in results.splits:
        rows = [row for row in results.of(algorithm, split.name) if chosen(row)]
        families = scored_families(split)
        if rows and families:
            scores = np.stack([normalised(returns(row), split.optimum) for row in rows])
            found.append(ScoreGroup(scores, families))
    return found


def scored_families(split: ScoredWindows) -> tuple[str, ...]:
    """Return the families of the windows that are scored."""
    pairs = zip(split.families, split.optimum, strict=True)
    return tuple(family for family, optimum in pairs if optimum >= LEAST_OPTIMUM)


def harm(results: LearningResults, algorithm: str) -> float:
    """Return the mean share that an algorithm saves, negative where it loses, in the windows in which nothing is to be
    gained; NaN where there are none."""
    found = list[float]()
    for split in results.splits:
        idle = [number for number, optimum in enumerate(split.optimum) if optimum < LEAST_OPTIMUM]
        found += [row.returns[number] for row in results.of(algorithm, split.name) for number in idle]
    return float(np.mean(found)) if found else float("nan")


def saved(results: LearningResults, algorithm: str) -> float:
    """Return the mean share that an algorithm saves in all held-out windows."""
    return float(np.mean([share for row in results.of(algorithm) for share in row.returns]))


def possible(results: LearningResults) -> float:
    """Return the mean of the largest shares that can be saved in all held-out windows."""
    return float(np.mean([optimum for split in results.splits for optimum in split.optimum]))
