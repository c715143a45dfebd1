"""The fastest of many measured graphs, found by measuring again those that may be among them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from agents.core.base import Search, Visit
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import SCREEN, ConfirmingMeter, Latency, Plan, unblocked_time
from graph_rewrite.latency.estimates import half_width, pooled
from graph_rewrite.task.limits import priced

INDIFFERENCE = 0.005
"""Difference between speed-ups that a race does not look for."""
MOST_LOOKS = 24
"""Most further measurements of a graph in the races of a search: 24 of half a second each tell its speed-up within 1%,
even where sessions differ by 5%, as those of a network do that reads 80 MB of weights in 3 ms."""


def estimate(search: Search, graph: Graph, latency: Latency) -> float:
    """Return the speed-up that a graph seems to have, with the price of added weights put on the latency."""
    return priced(latency.speedup, search.price(graph))


def upper(search: Search, graph: Graph, latency: Latency) -> float:
    """Return the upper bound of a speed-up, likewise; `Search.worth` is the lower one."""
    return priced(latency.ci95[1], search.price(graph))


def confirmed(search: Search, graph: Graph, plan: Plan, look: int = 0) -> Latency:
    """Measure a graph anew as `Problem.confirm` does, charged to the search as if it were measured now."""
    begin = unblocked_time()
    latency = search.problem.confirm(graph, plan, look)
    search.charge((graph.hash, plan, look), search.problem.confirming_s(graph, plan, look), unblocked_time() - begin)
    return latency


def race(search: Search, visits: Iterable[Visit], count: int, until: Callable[[], bool]) -> list[Visit]:
    """Measure visited graphs again until the `count` fastest are known, or time is up; `search` keeps what all their
    measurements say together.

    Each time, the one of those that seem fastest whose lower bound is the lowest is measured again, or the one of the
    others whose upper bound is the highest, whichever is known less well: the algorithm LUCB (Kalyanakrishnan et al.,
    "PAC subset selection in stochastic multi-armed bandits", ICML 2012), which measures both. A meter that cannot
    measure anew tells nothing more.

    Args:
        visits: of the search; those that failed come last.
        until: says that time is up.

    Returns:
        All of them, as they are known now, the fastest first.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    current = {visit.graph.hash: search.visits[visit.graph.hash] for visit in visits}
    while isinstance(search.problem.meter, ConfirmingMeter) and not until():
        doubtful = _doubtful(search, _ranked(search, current.values()), count)
        open_ones = [visit for visit in doubtful if visit.looks < MOST_LOOKS]
        if not open_ones:
            break
        chosen = max(open_ones, key=lambda visit: half_width(visit.latency))
        found = confirmed(search, chosen.graph, SCREEN, chosen.looks)
        visit = replace(chosen, latency=pooled(chosen.latency, found), looks=chosen.looks + 1)
        current[visit.graph.hash] = search.visits[visit.graph.hash] = visit
        search.tell()
    return _ranked(search, current.values())


def _ranked(search: Search, visits: Iterable[Visit]) -> list[Visit]:
    return sorted(visits, key=lambda visit: (not visit.latency.ok, -estimate(search, visit.graph, visit.latency)))


def _doubtful(search: Search, ranked: Sequence[Visit], count: int) -> tuple[Visit, ...]:
    """Return, of visits with the fastest first, the one of the first `count` that may be the slowest and the one of the
    others that may be the fastest; none where it is known which ones are the fastest."""
    running = [visit for visit in ranked if visit.latency.ok]
    first, others = running[:count], running[count:]
    if not others:
        return ()
    weakest = min(first, key=lambda visit: search.worth(visit.graph, visit.latency))
    strongest = max(others, key=lambda visit: upper(search, visit.graph, visit.latency))
    overlap = upper(search, strongest.graph, strongest.latency) - search.worth(weakest.graph, weakest.latency)
    return (weakest, strongest) if overlap > INDIFFERENCE else ()
