"""A roofline estimate of how long operators take, before anything is timed: it only orders the search."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.work import estimate_flops, touched

FLOPS = 6e10
"""Floating-point operations per second of a convolution or matrix product on one core."""
BYTES = 8e9
"""Bytes per second that an element-wise operator reads and writes on one core."""

_SHORTEST = 1e-12
"""Seconds of a graph that computes no element."""
_SECONDS = MemoKey[float]("roofline seconds")


def estimated_seconds(graph: Graph) -> float:
    """Return the seconds that a graph may take, by arithmetic and memory traffic at 4 bytes per element; never 0, so
    that a share of it can be taken."""
    known = graph.memo.get(_SECONDS)
    if known is None:
        seconds = sum((_seconds(graph, node) for node in graph.nodes.values()), 0.0)
        known = graph.memo.put(_SECONDS, max(seconds, _SHORTEST))
    return known


def operand_types(graph: Graph, node: Node) -> tuple[list[TensorType | None], list[TensorType | None]]:
    """Return the types of a node's operands and of its results, None where one is left out or not known."""
    inputs, outputs = (
        [None if v is None else graph.types.get(v) for v in side] for side in (node.inputs, node.outputs)
    )
    return inputs, outputs


def _seconds(graph: Graph, node: Node) -> float:
    inputs, outputs = operand_types(graph, node)
    traffic = 4.0 * sum(type.size for type in touched(node, inputs, outputs)) / BYTES
    return traffic + estimate_flops(node, inputs, outputs) / FLOPS
