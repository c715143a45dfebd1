"""Starts of a search: graphs that are known before it begins, such as the result of an earlier search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from agents.core.base import Action, Search
from graph_rewrite.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Start:
    """A graph, and the actions that lead to it from the problem's own."""

    graph: Graph
    actions: tuple[Action, ...]


@runtime_checkable
class StartingAgent(Protocol):
    """An agent that can begin with known graphs beside the problem's own."""

    starts: Sequence[Start]


def measure_starts(search: Search, starts: Sequence[Start]) -> None:
    """Measure the problem's own graph and known ones, of which the best is where the search goes on."""
    search.measure(search.problem.model.graph, ())
    for start in starts:
        if search.can_measure:
            search.measure(start.graph, start.actions)
