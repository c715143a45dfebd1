"""Denormal numbers, which a look at a graph says will be computed."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node

EXPONENTS = (-104.0, -87.3)
"""Exponents between which the exponential function is a denormal number of single precision."""
SPREAD = 15.0
"""Scores of attention are taken to differ by this much at most, beside what a mask adds to them."""
_SCORES = {("", "Softmax"): 0, ("", "LogSoftmax"): 0, ("", "Attention"): 3, ("com.microsoft", "MultiHeadAttention"): 5}
"""The input of an operator that tells the scores whose exponentials it takes, or what is added to them."""
_PASSED = frozenset({
    "Add", "Cast", "Concat", "Div", "Expand", "Flatten", "Gather", "Identity", "Mul", "Reshape", "Slice", "Squeeze",
    "Sub", "Transpose", "Unsqueeze", "Where",
})  # fmt: skip


def computes_denormals(graph: Graph) -> bool:
    """Return whether a Softmax takes exponentials that are denormal in single precision, as where a mask adds -100 to
    scores; masks of -10,000 or of negative infinity give zeros. Some processors take a hundred times as long for an
    operation on denormal numbers. Those that come from inputs or weights are not looked for."""
    open_values = [value for node in graph.nodes.values() if (value := _scores(node)) is not None]
    seen = set(open_values)
    while open_values:
        value = open_values.pop()
        constant = graph.constants.get(value)
        if constant is not None and _makes_denormals(constant):
            return True
        node = graph.node_of(value)
        if node is not None and node.op in _PASSED:
            found = {of for of in node.inputs if of is not None} - seen
            seen |= found
            open_values += found
    return False


def _scores(node: Node) -> int | None:
    number = _SCORES.get((node.domain, node.op), len(node.inputs))
    return node.inputs[number] if number < len(node.inputs) else None


def _makes_denormals(constant: Constant) -> bool:
    if constant.type.dtype != TensorProto.FLOAT:
        return False
    elements, (least, most) = constant.numpy(), EXPONENTS
    return bool(np.any((elements > least) & (elements < most + SPREAD)))
