"""A first guess of how long operators take, before anything is timed: it only orders the search."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from graph_rewrite.ir import Graph, Node

FLOPS = 6e10
"""Floating-point operations per second of a convolution or matrix product on one core."""
BYTES = 8e9
"""Bytes per second that an element-wise operator reads and writes on one core."""

_PRODUCTS = frozenset({"Conv", "FusedConv", "MatMul", "Gemm", "FusedMatMul", "FusedGemm"})


def estimated_seconds(graph: Graph, nodes: Iterable[int]) -> float:
    """Seconds that these nodes may take, by arithmetic and memory traffic at 4 bytes per element."""
    return sum(_seconds(graph, graph.nodes[n]) for n in nodes)


def _seconds(graph: Graph, node: Node) -> float:
    types = [graph.types.get(v) for v in (*node.inputs, *node.outputs) if v is not None]
    traffic = 4.0 * sum(type.size for type in types if type is not None) / BYTES
    return traffic + _products(graph, node) / FLOPS


def _products(graph: Graph, node: Node) -> float:
    """Multiplications and additions of a matrix product or a convolution; 0 for any other operator."""
    if node.op not in _PRODUCTS or len(node.inputs) < 2 or node.inputs[1] is None:
        return 0.0
    second, result = graph.types.get(node.inputs[1]), graph.types.get(node.outputs[0])
    if second is None or result is None or second.rank < 2:
        return 0.0
    if node.op.endswith("Conv"):
        return 2.0 * result.size * prod(second.shape[1:])
    depth = second.size / max(1, prod(second.shape[:-2])) / max(1, result.shape[-1] if result.rank else 1)
    return 2.0 * result.size * depth
