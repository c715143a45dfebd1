"""Rounding that a comparison allows: how far the outputs of two equal models may lie apart."""

from __future__ import annotations

import math

from onnx import TensorProto

from graph_rewrite.ir.graph import Graph
from graph_rewrite.runtime import Deployment

# Unit roundoff, and how many of them an operator may contribute. Sums of products are accumulated in float32 whatever
# the type of their operands, so low precision allows fewer. Measured on whole models in float32, in unit roundoffs:
# up to 130 for Winograd's F(4,4), 500 for one-dimensional Toom-Cook with m = 4 (relative to the output's scale).
_PRECISION: dict[int, tuple[float, float]] = {
    TensorProto.DOUBLE: (2.0**-53, 4096.0),
    TensorProto.FLOAT: (2.0**-24, 256.0),
    TensorProto.FLOAT16: (2.0**-11, 8.0),
    TensorProto.BFLOAT16: (2.0**-8, 4.0),
    # One value rounded the other way differs by two units of its own scale.
    TensorProto.FLOAT8E4M3FN: (2.0**-4, 1.0),
    TensorProto.FLOAT8E4M3FNUZ: (2.0**-4, 1.0),
    TensorProto.FLOAT8E5M2: (2.0**-3, 1.0),
    TensorProto.FLOAT8E5M2FNUZ: (2.0**-3, 1.0),
}
# ONNX Runtime multiplies float32 matrices on CUDA in TF32, with 10 bits of mantissa.
_TF32 = (2.0**-11, 4.0)
_FREE_DEPTH = 8


def default_tolerance(graph: Graph, deployment: Deployment) -> float:
    """Return the relative error that rounding may cause: c u sqrt(8 + depth).

    u is the unit roundoff of the least precise floating-point type in the graph (that of TF32 for float32 on CUDA), c a
    factor per type, and depth the number of operators on the longest path: independent roundings add up like a random
    walk. In float32 that is 5e-5 for a single operator and 2e-4 for BERT-base.
    """
    unit, factor = _coarsest(graph, deployment)
    return factor * unit * math.sqrt(_FREE_DEPTH + depth(graph))


def is_single_or_finer(graph: Graph, deployment: Deployment) -> bool:
    """Return whether everything in the graph is computed in float32 or float64, not in a coarser type or in TF32."""
    return _coarsest(graph, deployment)[0] <= _PRECISION[TensorProto.FLOAT][0]


def _coarsest(graph: Graph, deployment: Deployment) -> tuple[float, float]:
    """Unit roundoff and factor of the least precise floating-point type."""
    types = [*graph.types.values(), *(constant.type for constant in graph.constants.values())]
    present = {type.dtype for type in types if type is not None} & set(_PRECISION)
    unit, factor = max((_PRECISION[dtype] for dtype in present), default=_PRECISION[TensorProto.FLOAT])
    if deployment.provider == "cuda" and TensorProto.FLOAT in present:
        unit, factor = max((unit, factor), _TF32)
    return unit, factor


def depth(graph: Graph) -> int:
    """Return the number of operators on the longest path."""
    longest: dict[int, int] = {}
    for node in graph.order():
        before = max((longest.get(value, 0) for value in node.inputs if value is not None), default=0)
        longest.update(dict.fromkeys(node.outputs, before + 1))
    return max(longest.values(), default=0)
