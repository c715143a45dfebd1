"""The choice among the best graphs of a search: measured again, as far as the time goes."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from agents.conclusion.confirmation import (
    as_chosen,
    compared_again,
    needed_seconds,
    over,
    share_of_time,
    surely_faster,
)
from agents.conclusion.racing import estimate, upper
from agents.core.base import SMALL_LEAD, Search, Visit
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import FULL, Latency
from graph_rewrite.latency.estimates import pooled
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left

FINALISTS = 4
"""Number of screened graphs that are measured with full effort: the one with the highest lower bound, those that seem
to be fastest, and a simple one."""
UNDECIDED = 0.02
"""Gain that a measurement must leave possible for a graph to be measured again that does not seem to be faster: to tell
a smaller one from none takes longer than there is time."""
MEASURING_SHARE, LARGE_LEAD_SHARE = 0.2, 0.4
"""Part of the time left before a deadline that measuring the finalists may take, and where the first has a large or a
sure lead over the original, which little time confirms."""
CHOOSING_SHARE = 0.8
"""The same for a provisional budget, where nothing else is to be done."""
BLOCK_RUNS = 20.0
"""Runs of the first finalist that a short comparison with another one takes, with its sessions."""
COMPARING_RUNS = 30.0
"""The same, where more sessions than one should fit, or large weights are opened."""
AMPLE = 1.5
"""Times the budget of a full measurement that there must be for each finalist, and each comparison of two, to measure
them as without a deadline."""


def measured_finalists(search: Search) -> list[tuple[Visit, Latency]]:
    """Measure the finalists with full effort. Where time is short, those that may be the fastest are compared in turn
    instead, as many as there is time for. Return all of them, fastest first."""
    finalists = finalists_of(search)
    if not finalists:
        return []
    share = CHOOSING_SHARE if search.budget.provisional else _measuring_share(search, finalists[0])
    if share * seconds_left() < AMPLE * (2 * len(finalists) - 1) * FULL.budget_s:
        return _chosen_in_turn(search, [(visit, visit.latency) for visit in finalists], share)
    measured = {visit.graph.hash: (visit, visit.latency) for visit in finalists}
    with suppress(OutOfTime), share_of_time(share):
        for visit in finalists:
            measured[visit.graph.hash] = (visit, search.problem.measure(visit.graph, "full"))
        return _ranked(search, _by_worth(search, measured.values()))
    return _by_worth(search, measured.values())


def _measuring_share(search: Search, first: Visit) -> float:
    """Return the part of the time left that measuring the finalists may take: it leaves what checking and confirming
    one of them takes at least."""
    is_large, left = search.worth(first.graph, first.latency) >= 1.0 + SMALL_LEAD, seconds_left()
    is_sure = surely_faster(as_chosen(search, first.latency))
    share = LARGE_LEAD_SHARE if is_large or is_sure else MEASURING_SHARE
    if math.isinf(left):
        return share
    return max(0.0, min(share, 1.0 - needed_seconds(search, first.graph, first.latency, left) / left))


def _chosen_in_turn(
    search: Search, measured: Sequence[tuple[Visit, Latency]], share: float
) -> list[tuple[Visit, Latency]]:
    """Compare the first of the finalists with each that may be as fast, and go on from the faster. Two graphs timed
    in turn tell their ratio better than two measurements against the original do, in half of the time.

    Args:
        share: part of the time left that this may take.
    """
    leader, *others = measured
    least = search.worth(leader[0].graph, leader[1])
    rivals = [pair for pair in others if upper(search, pair[0].graph, pair[1]) >= least]
    with suppress(OutOfTime), share_of_time(share):
        rivals = rivals[: int(seconds_left() / (BLOCK_RUNS * leader[1].ms / 1e3))]
        for left, rival in zip(range(len(rivals), 0, -1), rivals, strict=True):
            with share_of_time(1.0 / left):
                leader, behind = _compared(search, leader, rival)
            others = [*(other for other in others if other is not rival), behind]
    return [leader, *_by_worth(search, others)]


def _compared(
    search: Search, leader: tuple[Visit, Latency], rival: tuple[Visit, Latency]
) -> tuple[tuple[Visit, Latency], tuple[Visit, Latency]]:
    """Time two graphs in turn, and put that together with what is known of each. Return them, faster first."""
    ratio = compared_again(search, leader[0].graph, rival[0].graph)
    if ratio is None or not ratio.ok:
        return leader, rival
    one = (leader[0], pooled(leader[1], over(rival[1], ratio, inverse=True)))
    other = (rival[0], pooled(rival[1], over(leader[1], ratio)))
    gains = estimate(search, rival[0].graph, other[1]) > estimate(search, leader[0].graph, one[1])
    return (other, one) if gains else (one, other)


def compare_in_turn(search: Search, one: Visit, other: Visit) -> None:
    """Time two measured graphs in turn in about `COMPARING_RUNS` runs of the first one, and keep in the search what
    that says of both. Where the meter cannot compare graphs, or that time does not suffice, nothing changes."""
    with suppress(OutOfTime), ending_at(time.monotonic() + COMPARING_RUNS * one.latency.ms / 1e3):
        for visit, latency in _compared(search, (one, one.latency), (other, other.latency)):
            search.visits[visit.graph.hash] = replace(visit, latency=latency)


def _by_worth(search: Search, measured: Iterable[tuple[Visit, Latency]]) -> list[tuple[Visit, Latency]]:
    return sorted(measured, key=lambda pair: -search.worth(pair[0].graph, pair[1]))


def with_light(search: Search, chosen: list[Visit], ranked: Sequence[Visit]) -> list[Visit]:
    """Add the first of `ranked` without a price where all chosen graphs have one: what they gain may turn out to be too
    little for the weights that they add."""
    light = next((visit for visit in ranked if not search.price(visit.graph)), None)
    dear = bool(chosen) and all(search.price(visit.graph) for visit in chosen)
    return [*chosen, light] if dear and light is not None else chosen


def finalists_of(search: Search) -> list[Visit]:
    """Return the best screened graphs: the one with the highest lower bound first, then those that seem to be fastest,
    since the widths of intervals from a few runs are luck as well. The last of them is the one with the fewest rewrites
    among those that may be as fast as the first: what was added to it may be luck. Where all of them add weights at a
    price, the best that adds none follows. Where none seems to be faster than the original, that is the one which may
    be so and seems fastest."""
    found = [visit for visit in search.visits.values() if visit.actions and visit.latency.ok]
    leading = [visit for visit in found if estimate(search, visit.graph, visit.latency) > 1.0]
    if not leading:
        undecided = [visit for visit in found if is_undecided(search, visit.graph, visit.latency)]
        return sorted(undecided, key=lambda visit: -estimate(search, visit.graph, visit.latency))[:1]
    by_worth = sorted(leading, key=lambda visit: -search.worth(visit.graph, visit.latency))
    first, others = by_worth[0], sorted(by_worth[1:], key=lambda visit: -estimate(search, visit.graph, visit.latency))
    least = search.worth(first.graph, first.latency)
    rest = [visit for visit in others[FINALISTS - 2 :] if upper(search, visit.graph, visit.latency) > least]
    chosen = [first, *others[: FINALISTS - 2], *sorted(rest, key=lambda visit: len(visit.actions))[:1]]
    return with_light(search, chosen, by_worth)


def is_undecided(search: Search, graph: Graph, latency: Latency) -> bool:
    """Return whether a graph may be so much faster than the original that it is worth another measurement."""
    return latency.ok and upper(search, graph, latency) > 1.0 + UNDECIDED


def _ranked(search: Search, ranked: list[tuple[Visit, Latency]]) -> list[tuple[Visit, Latency]]:
    """Return the graphs in their order, but the first such that none of the others was faster than it when both ran in
    turn."""
    for challenger in ranked[1:]:
        leader = ranked[0]
        compared = search.problem.compare(leader[0].graph, challenger[0].graph)
        if compared is None or not compared[0].ok:
            continue
        if search.is_worth_more(challenger[0], replace(leader[0], latency=leader[1]), compared[0].speedup):
            ranked = [challenger, *(pair for pair in ranked if pair is not challenger)]
    return ranked
