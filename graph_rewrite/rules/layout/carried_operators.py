"""Operators that a subgraph may have to be carried through ONNX Runtime's blocked layout."""

from __future__ import annotations

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN
from graph_rewrite.operators.operator_sets import POOLS

MOVES = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Pad", "Gather",
})  # fmt: skip
BINARY_CARRIED = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"})
UNARY_CARRIED = frozenset({
    "Abs", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip
CARRIED = frozenset({"Conv"}) | POOLS | MOVES | BINARY_CARRIED | UNARY_CARRIED
"""All operators that `blocked_walk` goes through."""


def leaves_layout(node: Node) -> bool:
    """Tell whether ONNX Runtime's own pass leaves the layout for a node, or the node does so explicitly. Where no node
    does, explicit operators gain nothing."""
    if node.domain == DOMAIN:
        return True
    return node.op in MOVES and not node.domain and not (node.op == "Concat" and node.attrs.get("axis") == 1)
