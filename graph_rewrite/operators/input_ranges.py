"""Ranges of a graph's integer inputs that index tables."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.runtime.ort_worker.feeds import ELEMENTS

_POSITIONS = {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2}
"""Operators that take a position in a sequence, and the number of that operand."""
_ALONG_AXIS = frozenset({"Gather", "GatherElements", "Scatter", "ScatterElements"})
"""Operators whose second operand holds places along an axis of the first."""
_IN_ALL_AXES = frozenset({"GatherND", "ScatterND"})
"""Operators whose second operand holds places in the first, a number per axis in its last dimension."""
_LOSSES = frozenset({"NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss"})
"""Operators whose second operand holds numbers of classes, which the first one has along its second axis."""
_FORWARDED = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})


def index_ranges(graph: Graph) -> dict[str, tuple[int, int]]:
    """Return the range (low, high), high exclusive, of inputs that select entries of a table or of a sequence: token
    ids, positions, types, numbers of classes."""
    ranges: dict[str, tuple[int, int]] = {}
    for value in graph.inputs:
        if sizes := _table_sizes(graph, value):
            ranges[graph.names[value]] = (0, min(sizes))
    return ranges


def _table_sizes(graph: Graph, value: int) -> list[int]:
    sizes: list[int] = []
    for node_id in dict.fromkeys(graph.consumers.get(value, ())):
        node = graph.nodes[node_id]
        if node.op in _FORWARDED and node.inputs[0] == value:
            sizes.extend(_table_sizes(graph, node.outputs[0]))
        else:
            operands = (operand for operand, read in enumerate(node.inputs) if read == value)
            sizes.extend(size for operand in operands for size in _sizes_at(graph, node, operand))
    return sizes


def _sizes_at(graph: Graph, node: Node, operand: int) -> Sequence[int]:
    """Return the sizes that the integers in an operand of a node have to stay below."""
    first = _shape(graph, node, 0)
    if node.op in _ALONG_AXIS and operand == 1:
        axis = node.attrs.get("axis", 0)
        return first[axis : axis + 1 or None]
    if node.op in _IN_ALL_AXES and operand == 1:
        axes, batch = _shape(graph, node, 1)[-1:], node.attrs.get("batch_dims", 0)
        return first[batch : batch + axes[0]] if axes else ()
    if node.op == "RotaryEmbedding" and operand == (1 if node.domain else 3):
        return _shape(graph, node, 2 if node.domain else 1)[:1]
    if node.op in _LOSSES and operand == 1:
        return first[1:2]
    return (ELEMENTS,) if _POSITIONS.get(node.op) == operand else ()


def _shape(graph: Graph, node: Node, operand: int) -> tuple[int, ...]:
    """Return the shape of an operand; empty where it is not known."""
    value = node.inputs[operand]
    type = None if value is None else graph.types[value]
    return () if type is None else type.shape
