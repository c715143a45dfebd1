"""Estimate of the memory that a model passes through the caches in a run."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.roofline import operand_types
from graph_rewrite.operators.work import tensor_bytes, touched

MOST_TRAFFIC = 64 << 20
"""Bytes beyond which more traffic changes nothing: the last level of caches holds less, or is shared."""


def traffic_of(graph: Graph) -> int:
    """Return the bytes that the operators of a graph read and write in a run, at most `MOST_TRAFFIC`. Of a table that
    rows are picked from, these count."""
    found = 0
    for node in graph.nodes.values():
        found += sum(map(tensor_bytes, touched(node, *operand_types(graph, node))))
        if found >= MOST_TRAFFIC:
            return MOST_TRAFFIC
    return found
