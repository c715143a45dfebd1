"""Scores of replayed searches: the timings that they need for most of what can be saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.learning.search_order.replaying import ReplayedSearch, SearchedNetwork, TableFacts, Timing

ENOUGH = 0.9
"""Share of what can be saved that a search must have."""
LEAST_POSSIBLE = 0.01
"""Share of the model's time that must be possible to save for a network to count."""
RESAMPLES = 5000
BASELINE = "constants"
EARLY = (5, 10, 20, 40, 80)
"""Numbers of timings after which it is looked at what a search has."""


@dataclass(frozen=True, slots=True)
class OrderScore:
    """The effort of one search until it had enough."""

    timings: float
    seconds: float
    """Seconds that these timings took when they were made."""
    at_end: float
    """Share of what can be saved that the search had when nothing promised enough any more."""
    early: tuple[float, ...]
    """Share of what can be saved that the search had after each of `EARLY` timings."""


def possible(facts: TableFacts, network: SearchedNetwork) -> float:
    """Return the share of the model's time that the best chains of all windows save together. Windows that
    share nodes count beside each other, as the table does not know them."""
    return sum(map(facts.best_saved, network.windows))


def score(facts: TableFacts, network: SearchedNetwork, search: ReplayedSearch) -> OrderScore:
    """Return the effort of a search until it had `ENOUGH` of what can be saved."""
    saved = savings(facts, search.timings) / possible(facts, network)
    needed = int(np.argmax(saved >= ENOUGH - 1e-9))
    seconds = sum(timing.cost_s for timing in search.timings[: needed + 1])
    had = saved[search.promising - 1] if search.promising else 0.0
    early = tuple(float(saved[min(number, len(saved)) - 1]) for number in EARLY)
    return OrderScore(needed + 1, seconds, float(had), early)


def savings(facts: TableFacts, timings: Sequence[Timing]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the share of the model's time that the best chains save after each timing, float64 [timings]."""
    best: dict[int, float] = {}
    total, found = 0.0, np.zeros(len(timings))
    for number, timing in enumerate(timings):
        after = facts.arrays["step_next"][timing.step]
        worth = facts.table.windows[timing.window].weight * float(facts.saved[after])
        if worth > best.get(timing.window, 0.0):
            total += worth - best.get(timing.window, 0.0)
            best[timing.window] = worth
        found[number] = total
    return found


def mean_score(scores: Sequence[OrderScore]) -> OrderScore:
    """Return the mean of several searches of one network."""
    timings, seconds, at_end, *early = (
        float(value)
        for value in np.array([(one.timings, one.seconds, one.at_end, *one.early) for one in scores]).mean(axis=0)
    )
    return OrderScore(timings, seconds, at_end, tuple(early))


def comparison(
    rows: Sequence[Mapping[str, Any]], order: str, entry: str = "timings", baseline: str = BASELINE
) -> dict[str, Any]:
    """Return the geometric mean over networks of an order's effort relative to the baseline's, with its 95% interval;
    below 1 it needs less.

    Args:
        rows: of networks, with `family` and, for each order, its scores as JSON.
        order: a name of an order.
        entry: `timings` or `seconds`.
        baseline: the order that it is compared with.
    """
    mean, ends = _difference(rows, order, lambda scores: float(np.log(max(scores[entry], 1e-3))), baseline)
    return {
        "relative": round(float(np.exp(mean)), 3), "ci95": [round(float(np.exp(end)), 3) for end in ends],
        "mean": round(float(np.mean([row["orders"][order][entry] for row in rows])), 2),
        "at_end": round(float(np.mean([row["orders"][order]["at_end"] for row in rows])), 3),
    }  # fmt: skip


def early_comparison(
    rows: Sequence[Mapping[str, Any]], order: str, baseline: str = BASELINE
) -> dict[str, Any]:  # fmt: skip
    """Return the mean share of what can be saved that an order has after each of `EARLY` timings, in percent, and by
    how much it is ahead of the baseline in the mean of these, with its 95% interval."""
    had = np.array([row["orders"][order]["early"] for row in rows]).mean(axis=0)
    mean, ends = _difference(rows, order, lambda scores: 100.0 * float(np.mean(scores["early"])), baseline)
    return {
        "percent": {str(number): round(100.0 * float(one), 1) for number, one in zip(EARLY, had, strict=True)},
        "ahead": round(mean, 1), "ci95": [round(end, 1) for end in ends],
    }  # fmt: skip


def _difference(
    rows: Sequence[Mapping[str, Any]], order: str, value: Callable[[Mapping[str, Any]], float], baseline: str
) -> tuple[float, tuple[float, float]]:
    """Return the mean difference of a value of an order and of the baseline, with its 95% interval. The bootstrap draws
    families, then networks within them: those of a family are alike."""
    found: dict[str, list[float]] = {}
    for row in rows:
        one, base = (value(row["orders"][name]) for name in (order, baseline))
        found.setdefault(row["family"], []).append(one - base)
    groups, random, means = list(found.values()), np.random.default_rng(0), []
    for _ in range(RESAMPLES):
        drawn = [groups[number] for number in random.integers(len(groups), size=len(groups))]
        means.append(np.mean(np.concatenate([random.choice(group, len(group)) for group in drawn])))
    low, high = np.percentile(means, [2.5, 97.5])
    return float(np.mean(np.concatenate(groups))), (float(low), float(high))
