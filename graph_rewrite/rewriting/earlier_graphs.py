"""The nearest earlier graph of which something is known."""

from __future__ import annotations

from typing import TypeVar

from graph_rewrite.ir.graph import Graph, GraphDelta
from graph_rewrite.ir.memo import MemoKey

T = TypeVar("T")


def known_before(graph: Graph, key: MemoKey[T]) -> tuple[T, GraphDelta] | None:
    """Return the state of the nearest earlier graph that has one, and all that changed since."""
    deltas: list[GraphDelta] = []
    here = graph
    while here.edit is not None:
        here, delta = here.edit
        deltas.append(delta)
        if (state := here.memo.get(key)) is not None:
            return state, _together(graph, deltas[::-1])
    return None


def _together(graph: Graph, deltas: list[GraphDelta]) -> GraphDelta:
    """Return several successive edits as one that led to `graph`."""
    if len(deltas) == 1:
        return deltas[0]
    return GraphDelta(
        frozenset().union(*(delta.removed for delta in deltas)),
        tuple(node for delta in deltas for node in delta.inserted if node in graph.nodes),
        frozenset(node for delta in deltas for node in delta.rewired if node in graph.nodes),
        frozenset().union(*(delta.touched for delta in deltas)),
        any(delta.reranked for delta in deltas),
    )
