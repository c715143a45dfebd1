"""Interquartile means and bootstrap intervals against brute force over all that can be drawn."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.learning.algorithms.intervals import (
    ScoreGroup,
    difference,
    estimate,
    interquartile_mean,
    resampled,
)

SCORES = np.array([[0.1, 0.9, 0.4], [0.3, -0.5, 1.0]])


def middle(values: list[float]) -> float:
    """The mean of what is left when a quarter, rounded down, is cut off at either end."""
    cut = len(values) // 4
    kept = sorted(values)[cut : len(values) - cut]
    return sum(kept) / len(kept)


def all_draws(scores: np.ndarray, families: tuple[str, ...]) -> Iterator[list[float]]:
    """Yield every sample of trainings and of windows within their families, all equally likely."""
    trainings, windows = scores.shape
    own = [[k for k in range(windows) if families[k] == families[place]] for place in range(windows)]
    for rows in product(range(trainings), repeat=trainings):
        for columns in product(*own):
            yield [scores[row, column] for row in rows for column in columns]


@given(st.lists(st.floats(-1.0, 1.0), min_size=1, max_size=24))
@settings(max_examples=60, deadline=None)
def test_the_mean_of_the_middle_half(values: list[float]) -> None:
    groups = [ScoreGroup(np.array([values]), ("one",) * len(values))]
    assert interquartile_mean(groups) == pytest.approx(middle(values))


@pytest.mark.parametrize("families", [("one", "one", "one"), ("one", "two", "two")])
def test_samples_are_drawn_as_often_as_all_draws_have_them(families: tuple[str, ...]) -> None:
    exact = [tuple(sorted(values)) for values in all_draws(SCORES, families)]
    drawn = [tuple(sorted(row)) for row in resampled([ScoreGroup(SCORES, families)], 20_000).tolist()]
    assert set(drawn) == set(exact)
    for sample in set(exact):
        assert drawn.count(sample) / len(drawn) == pytest.approx(exact.count(sample) / len(exact), abs=0.01)


def test_an_interval_is_that_of_the_middle_means_of_samples() -> None:
    group = ScoreGroup(SCORES, ("one", "two", "two"))
    found, means = estimate([group], 500), [middle(row) for row in resampled([group], 500).tolist()]
    assert found.value == middle(SCORES.ravel().tolist())
    assert (found.low, found.high) == pytest.approx(tuple(np.percentile(means, [2.5, 97.5])))


def test_what_one_seed_has_learnt_shows_in_all_windows() -> None:
    """A training that is good everywhere is drawn with all its windows: 100 windows don't make two seeds certain."""
    scores = np.repeat([[0.0], [1.0]], 100, axis=1)
    found = estimate([ScoreGroup(scores, ("one",) * 100)])
    assert (found.low, found.high) == (0.0, 1.0)


def test_differences_are_paired() -> None:
    """Luck that both share, of seeds and windows, does not widen the interval of the difference."""
    random = np.random.default_rng(0)
    common = random.normal(size=(5, 40))
    families = ("one",) * 20 + ("two",) * 20
    one, other = (ScoreGroup(common + shift, families) for shift in (0.2, 0.0))
    found = difference([one], [other])
    assert (found.low, found.value, found.high) == pytest.approx((0.2, 0.2, 0.2))
    assert found.is_positive
    assert estimate([one]).high - estimate([one]).low > 0.3
    assert not difference([one], [one]).is_positive
    assert not difference([other], [one]).is_positive


def test_intervals_hold_what_is_true() -> None:
    """About 95% of the 95% intervals of normal scores hold the mean; few seeds make them somewhat narrow."""
    random, held = np.random.default_rng(1), 0
    for _ in range(200):
        scores = random.normal(size=(10, 1)) + random.normal(size=(1, 20)) + random.normal(size=(10, 20))
        found = estimate([ScoreGroup(scores, ("one",) * 20)], 300)
        held += found.low <= 0.0 <= found.high
    assert 0.85 <= held / 200 <= 0.99


def test_groups_weigh_as_many_scores_as_they_have() -> None:
    groups = [ScoreGroup(np.zeros((2, 6)), ("one",) * 6), ScoreGroup(np.ones((2, 2)), ("two",) * 2)]
    assert interquartile_mean(groups) == middle([0.0] * 12 + [1.0] * 4)
    assert resampled(groups, 7).shape == (7, 16)


def test_what_cannot_be_paired_is_refused() -> None:
    one, other = ScoreGroup(np.zeros((2, 3)), ("one",) * 3), ScoreGroup(np.zeros((3, 3)), ("one",) * 3)
    with pytest.raises(ValueError, match="paired"):
        difference([one], [other])
