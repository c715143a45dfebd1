"""Sizes of graphs: bytes of the weights, and an estimate of the memory that one inference takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import onnx_ir

from graph_rewrite.ir.attributes import RawAttr
from graph_rewrite.ir.constants import Constant, nbytes
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType

_LARGE_SUBGRAPH = 64 << 10
"""Bytes; the weights of smaller ones do not count."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes: `weights` as stored in a file, and `peak`, weights and the most activations that live at one time.

    The peak is an estimate from the graph as it is: operators run in topological order, nothing is overwritten in
    place and nothing is fused. ONNX Runtime takes less for activations where it does either, and more for weights
    that it packs into another layout, kernels' scratch buffers and its arena. Values of unknown type count nothing.
    """

    weights: int
    peak: int


def memory_of(graph: Graph) -> Memory:
    """Return the weights and the peak memory of a graph."""
    weights = weight_bytes(graph)
    return Memory(weights, weights + _peak_activations(graph))


def weight_bytes(graph: Graph) -> int:
    """Return the bytes of all constants as a file stores them, those in attributes of nodes included. Nothing is
    evaluated."""
    return sum(map(nbytes, _stored_constants(graph))) + _subgraph_bytes([graph])


def shared_weight_bytes(graphs: Iterable[Graph]) -> int:
    """Return the bytes of all constants of some graphs, those that are equal counted once."""
    graphs = list(graphs)
    shared = {c.digest: nbytes(c) for graph in graphs for c in _stored_constants(graph)}
    return sum(shared.values()) + _subgraph_bytes(graphs)


def _stored_constants(graph: Graph) -> Iterator[Constant]:
    for value, constant in graph.constants.items():
        if graph.consumers.get(value) or value in graph.roots() or value in graph.names:
            yield constant
    yield from graph.stored.values()
    yield from (a for node in graph.nodes.values() for a in node.attrs.values() if isinstance(a, Constant))


def _subgraph_bytes(graphs: Iterable[Graph]) -> int:
    """Return the bytes of large subgraphs, which are little but their weights."""
    opaque = (node for graph in graphs for node in graph.nodes.values() if node.opaque)
    sizes = (len(value.data) for node in opaque for value in node.attrs.values() if isinstance(value, RawAttr))
    return sum(size for size in sizes if size >= _LARGE_SUBGRAPH)


def _peak_activations(graph: Graph) -> int:
    """Return the largest sum of the sizes of values that are computed already and still needed."""
    order = graph.order()
    last = {value: step for step, node in enumerate(order) for value in node.inputs if value is not None}
    # The caller holds inputs, and gets outputs at the end.
    kept = {*graph.inputs, *graph.outputs}
    expiring: dict[int, list[int]] = {}
    for value, step in last.items():
        if value in graph.producer and value not in kept:
            expiring.setdefault(step, []).append(value)
    live = peak = sum(_bytes(graph.types.get(value)) for value in graph.inputs)
    for step, node in enumerate(order):
        live += sum(_bytes(graph.types.get(value)) for value in node.outputs)
        peak = max(peak, live)
        # Outputs that nobody reads go at once.
        unread = (value for value in node.outputs if value not in last and value not in kept)
        live -= sum(_bytes(graph.types.get(value)) for value in (*expiring.get(step, ()), *unread))
    return peak


def _bytes(type: TensorType | None) -> int:
    if type is None:
        return 0
    try:
        bits = int(onnx_ir.DataType(type.dtype).bitwidth)
    except TypeError:  # strings have no fixed width
        return 0
    return -(-type.size * bits // 8)
