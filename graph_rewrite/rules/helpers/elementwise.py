"""Element-wise operators: which there are, and how a rule applies a matched one to other operands."""

from __future__ import annotations

from collections.abc import Sequence

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

UNARY = frozenset({
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Log",
    "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh",
    "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators that work on each element of their first input alone; further inputs are scalars (Clip's bounds)."""


BINARY = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mod", "Mul", "Or",
    "Pow", "Sub", "Xor",
})  # fmt: skip
"""Operators that work on pairs of elements of two inputs, with broadcasting in both directions."""


def unary_key(m: Match, label: str, rest: Sequence[Ref]) -> tuple[object, ...]:
    """Return a key of the function that an element-wise node applies: operator, attributes and further inputs."""
    return (m.node(label).signature, *(ref.constant.digest if ref.constant else ref.key for ref in rest))


def apply_like(op: ReplacementBuilder, m: Match, label: str, *inputs: Ref | None) -> Ref:
    """Apply the operator of the matched node with this label, with its attributes, to other inputs."""
    node = m.node(label)
    return op.apply(node.op, node.domain, dict(node.attrs), inputs, 1)[0]
