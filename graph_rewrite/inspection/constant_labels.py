"""Labels of constants: equal for constants that no rule tells apart by their elements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import numpy as np
import onnx

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph

_WEIGHTED = frozenset({
    "Add", "BatchNormalization", "Conv", "ConvInteger", "ConvTranspose", "DequantizeLinear", "Gather", "Gemm",
    "GroupNormalization", "InstanceNormalization", "LayerNormalization", "MatMul", "MatMulInteger", "Mul", "PRelu",
    "QLinearConv", "QLinearMatMul", "RMSNormalization", "Sub",
})  # fmt: skip
"""Operators that take weights: what they compute has the same type for all elements."""
_TYPES = frozenset({
    onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.INT8,
    onnx.TensorProto.UINT8,
})  # fmt: skip
"""Element types of weights."""
_LOOKED_AT = 64
"""Elements at the beginning of a weight that are looked at: all of it is read where these are few different ones."""


def constant_labels(graph: Graph) -> dict[int, Hashable]:
    """Return a label per constant of a graph.

    Rules look at the elements of numbers, shapes, indices and masks, and of a weight to see whether it is uniform or an
    identity. So a weight of more than two different elements bears its type alone, unless another constant of the graph
    has the same elements; all others bear their content.
    """
    beginnings = {value: _beginning(constant) for value, constant in graph.constants.items()}
    often = Counter(filter(None, beginnings.values()))
    labels: dict[int, Hashable] = {}
    for value, constant in graph.constants.items():
        begins = beginnings[value]
        weight = begins is not None and often[begins] == 1 and _is_weight(graph, value)
        labels[value] = "weight" if weight else constant.digest
    return labels


def _beginning(constant: Constant) -> tuple[Hashable, ...] | None:
    """Return the type and the first elements of a constant of which more than two elements are different; None for
    others, and for element types that weights do not have."""
    if constant.type.dtype not in _TYPES or constant.type.size < 3 or not _is_known(constant):
        return None
    first = constant.numpy().reshape(-1)[:_LOOKED_AT]
    return (constant.type, first.tobytes()) if len(np.unique(first)) > 2 else None


def _is_known(constant: Constant) -> bool:
    return constant.is_small or constant.expression is None


def _is_weight(graph: Graph, value: int) -> bool:
    """Tell whether only operators that take weights read a constant."""
    readers = [graph.nodes[n] for n in graph.consumers.get(value, ())]
    return value not in graph.roots() and all(node.op in _WEIGHTED and not node.domain for node in readers)
