"""Knowledge of the nearest earlier graph, so that only what changed since is computed anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from graph_rewrite.ir.graph import Graph, GraphDelta
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node

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


def of_each_node(graph: Graph, key: MemoKey[dict[int, T]], compute: Callable[[Node], T]) -> dict[int, T]:
    """Return what `compute` gives of each node of a graph, by node id. It is kept with the graph, and of an earlier
    graph only nodes that were inserted or connected otherwise since are computed.

    Args:
        compute: reads the node, the types of its values and which of them are constants.
    """
    found = graph.memo.get(key)
    if found is not None:
        return found
    known = known_before(graph, key)
    if known is None:
        return graph.memo.put(key, {node.id: compute(node) for node in graph.nodes.values()})
    before, delta = known
    found = {node_id: value for node_id, value in before.items() if node_id not in delta.removed}
    for node_id in (*delta.inserted, *delta.rewired):
        if node_id in graph.nodes:
            found[node_id] = compute(graph.nodes[node_id])
    return graph.memo.put(key, found)


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
