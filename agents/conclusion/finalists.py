"""The choice among the best graphs of a search: measured again, as far as the time goes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from agents.conclusion.confirmation import chosen_again, share_of_time
from agents.core.base import SMALL_LEAD, Search, Visit
from graph_rewrite.latency import FULL, Latency
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.limits import priced

FINALISTS = 3
"""Number of screened graphs that are measured with full effort: those with the highest lower bounds."""
MEASURING_SHARE = 0.2
"""Part of the time left before a deadline that measuring the finalists may take, each an equal part of it."""
LARGE_LEAD_SHARE = 0.4
"""The same where the best of them has a large lead over the original."""
CHOOSING_SHARE = 0.8
"""The same for a provisional budget, where nothing else is to be done."""
BLOCK_RUNS = 16.0
"""Runs of the original that a short measurement of a finalist takes, with its sessions."""
AMPLE = 1.5
"""Times the budget of a full measurement that there must be for each finalist, and each comparison of two, to measure
them as without a deadline."""


def measured_finalists(search: Search) -> list[tuple[Visit, Latency]]:
    """Measure the finalists with full effort. Where time is short, those that may be the fastest are measured again, as
    many as there is time for; of the others, and of one alone, the screened latency counts. Return all of them, fastest
    first."""
    finalists = finalists_of(search)
    measured = {visit.graph.hash: (visit, visit.latency) for visit in finalists}
    share = _measuring_share(search, finalists)
    seconds = share * seconds_left()
    is_limited = seconds < AMPLE * (2 * len(finalists) - 1) * FULL.budget_s
    again: Sequence[Visit] = finalists
    if is_limited:
        block_s = BLOCK_RUNS * search.original_s
        again = _rivals(search, finalists)
        again = again[: int(seconds / block_s)] if block_s else again
        if len(again) < 2:
            return _by_worth(search, measured.values())
    with suppress(OutOfTime), share_of_time(share):
        for left, visit in zip(range(len(again), 0, -1), again, strict=True):
            with share_of_time(1.0 / left if is_limited else 1.0):
                full = chosen_again(search, visit) if is_limited else search.problem.measure(visit.graph, "full")
            measured[visit.graph.hash] = (visit, full)
        if not is_limited:
            return _ranked(search, _by_worth(search, measured.values()))
    return _by_worth(search, measured.values())


def _measuring_share(search: Search, finalists: Sequence[Visit]) -> float:
    """Return the part of the time left that measuring the finalists may take: more where the first has a large lead,
    which little time confirms."""
    if search.budget.provisional:
        return CHOOSING_SHARE
    is_large = bool(finalists) and search.worth(finalists[0].graph, finalists[0].latency) >= 1.0 + SMALL_LEAD
    return LARGE_LEAD_SHARE if is_large else MEASURING_SHARE


def _rivals(search: Search, finalists: Sequence[Visit]) -> Sequence[Visit]:
    """Return those that may be as fast as the first one."""
    least = max((search.worth(visit.graph, visit.latency) for visit in finalists), default=0.0)
    return [visit for visit in finalists if priced(visit.latency.ci95[1], search.price(visit.graph)) >= least]


def _by_worth(search: Search, measured: Iterable[tuple[Visit, Latency]]) -> list[tuple[Visit, Latency]]:
    return sorted(measured, key=lambda pair: -search.worth(pair[0].graph, pair[1]))


def with_light(search: Search, chosen: list[Visit], ranked: Sequence[Visit]) -> list[Visit]:
    """Add the first of `ranked` without a price where all chosen graphs have one: what they gain may turn out to be too
    little for the weights that they add."""
    light = next((visit for visit in ranked if not search.price(visit.graph)), None)
    dear = bool(chosen) and all(search.price(visit.graph) for visit in chosen)
    return [*chosen, light] if dear and light is not None else chosen


def finalists_of(search: Search) -> list[Visit]:
    """Return the best screened graphs. The last of them is the one with the fewest rewrites among those that may be as
    fast as the first: what was added to it may be luck. Where all of them add weights at a price, the best that adds
    none follows."""
    found = [visit for visit in search.visits.values() if visit.actions and visit.latency.ok]
    found = [visit for visit in found if priced(visit.latency.speedup, search.price(visit.graph)) > 1.0]
    found = sorted(found, key=lambda visit: -search.worth(visit.graph, visit.latency))
    rest = [
        visit
        for visit in found[FINALISTS - 1 :]
        if priced(visit.latency.ci95[1], search.price(visit.graph)) > search.worth(found[0].graph, found[0].latency)
    ]
    chosen = found[: FINALISTS - 1] + sorted(rest, key=lambda visit: len(visit.actions))[:1]
    return with_light(search, chosen, found)


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
