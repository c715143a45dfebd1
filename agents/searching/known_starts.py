"""Starts of a search: graphs that are known before it begins, such as the result of an earlier search."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from agents.core.base import Action, Search
from agents.core.records import Improvement, supposed
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency

STARTS_SHARE = 0.1
"""Share of a search's seconds after which no further known graph is measured."""


@dataclass(frozen=True, slots=True)
class Start:
    """A graph, and the actions that lead to it from the problem's own."""

    graph: Graph
    actions: tuple[Action, ...]
    without: Callable[[frozenset[int]], Start | None] | None = field(default=None, kw_only=True, compare=False)
    """Returns the same without rewrites that remove any of some nodes of the problem's own graph, None where nothing is
    left; for graphs whose rewrites may not all pay here."""


@runtime_checkable
class StartingAgent(Protocol):
    """An agent that can begin with known graphs beside the problem's own."""

    starts: Sequence[Start]


def measure_starts(
    search: Search, starts: Sequence[Start], fit: Callable[[Start], Start | None] = lambda _: None
) -> None:
    """Measure known graphs; the search goes on from the best, or from the problem's own. No known graph is begun with
    once `STARTS_SHARE` of the time is spent on those before it.

    The first known graph is measured before anything else: its measurement times the original beside it, so that no
    time is spent on the problem's own graph alone.

    Args:
        fit: returns another form of a known graph to measure after it, if there is one. It may rely on a visit of the
            problem's own graph.
    """
    last = search.after(STARTS_SHARE)
    for start in starts:
        if not search.can_measure or search.seconds >= last:
            break
        visit_own(search, search.measure(start.graph, start.actions))
        fitted = fit(start)
        if fitted is not None and search.can_measure:
            search.measure(fitted.graph, fitted.actions)
    search.measure(search.problem.model.graph, ())


def visit_own(search: Search, other: Latency) -> None:
    """Visit the problem's own graph after another graph was measured before it, unless it was visited already.

    It is taken to be as fast as the original, which was timed beside the other graph, from the beginning; a graph that
    is no faster is no improvement. Only where the other graph failed is it measured itself.

    Args:
        other: the latency of the other graph.
    """
    own = search.problem.model.graph
    if own.hash in search.visits:
        return
    if not other.ok:
        search.measure(own, ())
        return
    search.visits[own.hash] = supposed(own, other.baseline_ms)
    first = Improvement(0.0, 0, 0, 1.0, other.baseline_ms)
    search.improvements[:] = [first, *(one for one in search.improvements if one.speedup > 1.0)]
