"""Interquartile means with bootstrap intervals, after rliable.

Agarwal et al., "Deep Reinforcement Learning at the Edge of the Statistical Precipice", NeurIPS 2021: the interquartile
mean over all trainings and tasks, with percentile intervals of a stratified bootstrap. There each task is trained on
by itself, and its runs are drawn anew independently. Here one training is scored in all windows of its split, so it is
drawn with all its scores: what one seed has learnt shows in every window. The windows are drawn anew as well, within
their families, since they stand for windows to come. What the library itself needs (arch, seaborn and others) is out of
proportion to these lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from agents.tabular.game import Floats, IntArray
from benchmarks.figures.intervals import middle_mean

DRAWS = 2000
_LOWEST, _HIGHEST = 2.5, 97.5


@dataclass(frozen=True)
class ScoreGroup:
    """The scores of the trainings of one split: float64 [trainings, windows], and the family of each window."""

    scores: Floats
    families: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScoreEstimate:
    """A number with its 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_positive(self) -> bool:
        """The whole interval lies above 0."""
        return self.low > 0.0

    def __str__(self) -> str:
        return f"{self.value:.2f} ({self.low:.2f} to {self.high:.2f})"


def interquartile_mean(groups: Sequence[ScoreGroup]) -> float:
    """Return the mean of the middle half of all scores of all groups."""
    return float(middle_mean(_all(groups))[0])


def estimate(groups: Sequence[ScoreGroup], draws: int = DRAWS) -> ScoreEstimate:
    """Return the interquartile mean of scores with its interval.

    Args:
        groups: at least one, each with a training and a window.
        draws: samples of the bootstrap.
    """
    return _told(interquartile_mean(groups), middle_mean(resampled(groups, draws)))


def difference(one: Sequence[ScoreGroup], other: Sequence[ScoreGroup], draws: int = DRAWS) -> ScoreEstimate:
    """Return how much larger the interquartile mean of one algorithm is than that of another, with the interval of the
    difference: the same trainings, by split and seed, and the same windows are drawn for both.

    Raises:
        ValueError: both are not of the same splits, seeds and windows.
    """
    shapes = [[(group.scores.shape, group.families) for group in groups] for groups in (one, other)]
    if shapes[0] != shapes[1]:
        raise ValueError("only trainings with the same splits, seeds and windows can be paired")
    value = interquartile_mean(one) - interquartile_mean(other)
    return _told(value, middle_mean(resampled(one, draws)) - middle_mean(resampled(other, draws)))


def resampled(groups: Sequence[ScoreGroup], draws: int) -> Floats:
    """Return scores drawn anew, [draws, trainings x windows of all groups]; the same draws for groups of the same
    shapes and families."""
    random = np.random.default_rng(0)
    found = []
    for group in groups:
        trainings, windows = group.scores.shape
        chosen = random.integers(trainings, size=(draws, trainings))
        columns = np.concatenate([_columns(group, family, draws, random) for family in _families(group)], axis=1)
        found.append(group.scores[chosen[:, :, None], columns[:, None, :]].reshape(draws, trainings * windows))
    return np.concatenate(found, axis=1)


def _columns(group: ScoreGroup, family: str, draws: int, random: np.random.Generator) -> IntArray:
    """Return windows of a family drawn anew, [draws, its windows]."""
    own = np.array([number for number, name in enumerate(group.families) if name == family])
    columns: IntArray = own[random.integers(len(own), size=(draws, len(own)))]
    return columns


def _families(group: ScoreGroup) -> list[str]:
    return list(dict.fromkeys(group.families))


def _all(groups: Sequence[ScoreGroup]) -> Floats:
    return np.concatenate([group.scores.reshape(1, -1) for group in groups], axis=1)


def _told(value: float, drawn: Floats) -> ScoreEstimate:
    low, high = np.percentile(drawn, (_LOWEST, _HIGHEST))
    return ScoreEstimate(value, min(float(low), value), max(float(high), value))
