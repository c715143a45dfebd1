"""Operators whose semantics are known here, and of these the random ones."""

from __future__ import annotations

from graph_rewrite.ir.node import Node
from graph_rewrite.operators import contrib, nchwc

RANDOM = frozenset(
    {"Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)
"""Operators of which two with the same inputs may give different results."""


def is_known(node: Node) -> bool:
    """Tell whether the operator is one of ONNX's own, or a foreign one whose semantics are known."""
    foreign = {contrib.DOMAIN: contrib.is_modelled, nchwc.DOMAIN: nchwc.is_modelled}.get(node.domain)
    return not node.opaque and (node.domain == "" or (foreign is not None and foreign(node.op)))


def is_repeatable(node: Node) -> bool:
    """Tell whether two applications to the same operands give the same: the operator is known, and not random."""
    return is_known(node) and node.op not in RANDOM
