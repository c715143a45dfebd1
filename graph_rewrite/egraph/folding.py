"""The constness analysis: an application whose operands have become constants is one itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from graph_rewrite.ir.constants import Constant, nbytes
from graph_rewrite.operators.folding import fold

if TYPE_CHECKING:
    from graph_rewrite.egraph.core import EGraph

LARGEST = 1 << 20
"""Bytes up to which a result may be larger than what it is made of (Expand, Tile)."""
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear", "Constant"})


def folded(egraph: EGraph, node: int) -> tuple[Constant, ...] | None:
    """The constants that an application computes; None where they are not known or not worth keeping."""
    operator = egraph.operator(node)
    if operator.kind != "operator" or not operator.foldable or operator.unique or operator.op in _KEPT:
        return None
    args = egraph.args(node)
    inputs = [None if arg < 0 else egraph.constants.get(arg) for arg in args]
    present = [constant for constant in inputs if constant is not None]
    if not present or len(present) != sum(arg >= 0 for arg in args):
        return None
    types = [type for cls in egraph.outputs_of(node) if (type := egraph.type_of(cls)) is not None]
    strings = any(t.dtype == onnx.TensorProto.STRING for t in (*types, *(c.type for c in present)))
    if len(types) != operator.outputs or strings:
        return None
    size = sum(t.size * onnx.helper.tensor_dtype_to_np_dtype(t.dtype).itemsize for t in types)
    if size > max(LARGEST, sum(map(nbytes, present))):
        return None
    try:
        return fold(operator.op, operator.domain, operator.attrs, inputs, types, egraph.opset)
    except Exception:  # onnx's reference evaluator raises whatever its numpy code happens to raise
        return None
