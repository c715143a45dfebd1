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


def suppose_start(search: Search, ms: float) -> None:
    """Take the problem's own graph to be as fast as the original, which takes so many milliseconds, from the beginning,
    and do not measure it. What was measured before and is no faster is no improvement."""
    start = supposed(search.problem.model.graph, ms)
    search.visits.setdefault(start.graph.hash, start)
    first = Improvement(0.0, 0, 0, 1.0, ms)
    search.improvements[:] = [first, *(one for one in search.improvements if one.speedup > 1.0)]


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
    own, last = search.problem.model.graph, search.after(STARTS_SHARE)
    for start in starts:
        if not search.can_measure or search.seconds >= last:
            break
        latency = search.measure(start.graph, start.actions)
        if own.hash not in search.visits:
            visit_own(search, latency)
        fitted = fit(start)
        if fitted is not None and search.can_measure:
            search.measure(fitted.graph, fitted.actions)
    search.measure(own, ())


def visit_own(search: Search, other: Latency) -> None:
    """Visit the problem's own graph after another graph was measured before it: only where that failed is it measured
    itself.

    Args:
        other: the latency of the other graph, beside which the original was timed.
    """
    if other.ok:
        suppose_start(search, other.baseline_ms)
    else:
        search.measure(search.problem.model.graph, ())
