"""Ranges of a graph's integer inputs that index tables."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.runtime.ort_worker.feeds import ELEMENTS

_POSITIONS = {"SequenceAt": 1, "SequenceErase": 1, "SequenceInsert": 2}
"""Operators that take a position in a sequence, and the number of that operand."""
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
        elif node.op in ("Gather", "GatherElements") and node.inputs[1] == value and node.inputs[0] is not None:
            table = graph.types[node.inputs[0]]
            if table is not None:
                sizes.append(table.shape[node.attrs.get("axis", 0)])
        elif node.op in _LOSSES and node.inputs[1] == value and node.inputs[0] is not None:
            scores = graph.types[node.inputs[0]]
            if scores is not None and scores.rank > 1:
                sizes.append(scores.shape[1])
        elif (place := _POSITIONS.get(node.op)) is not None and node.inputs[place : place + 1] == (value,):
            sizes.append(ELEMENTS)
    return sizes
