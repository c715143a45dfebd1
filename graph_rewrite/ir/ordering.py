"""Topological numbering of graphs."""

from __future__ import annotations

import heapq

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph


def topological_ranks(graph: Graph) -> dict[int, float]:
    """Return ranks 0, 1, 2, ... by Kahn's algorithm, smallest id first among the ready nodes.

    Raises:
        InvalidRewriteError: when the graph has a cycle.
    """
    missing: dict[int, int] = {}
    for node in graph.nodes.values():
        missing[node.id] = len({graph.producer[v] for v in node.inputs if v in graph.producer})
    ready = [node_id for node_id, count in missing.items() if count == 0]
    heapq.heapify(ready)
    ranks: dict[int, float] = {}
    while ready:
        node_id = heapq.heappop(ready)
        ranks[node_id] = float(len(ranks))
        successors = {c for value in graph.nodes[node_id].outputs for c in graph.consumers.get(value, ())}
        for consumer in successors:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                heapq.heappush(ready, consumer)
    if len(ranks) != len(graph.nodes):
        stuck = sorted(set(graph.nodes) - set(ranks))[:5]
        raise InvalidRewriteError(f"the graph has a cycle through nodes {[graph.nodes[n].op for n in stuck]}")
    return ranks
