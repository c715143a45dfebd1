"""The constant analysis: an application whose operands have become constants is a constant itself."""

from __future__ import annotations

from collections.abc import Sequence

import onnx

from graph_rewrite.egraph.structure.operators import Operator
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.constants import Constant, nbytes
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.folding import fold
from graph_rewrite.operators.work import tensor_bytes

LARGEST = 1 << 20
"""Bytes up to which a result may be larger than what it is made of (Expand, Tile)."""
_KEPT = frozenset({"DequantizeLinear", "QuantizeLinear", "Constant"})


def folded(
    operator: Operator, inputs: Sequence[Constant | None], types: Sequence[TensorType | None], opset: int
) -> tuple[Constant, ...] | None:
    """Return the constants that an application computes; None where they are not known or not worth keeping.

    Args:
        inputs: the operands, None where one is left out.
        types: of the outputs.
    """
    if operator.kind != "operator" or not operator.foldable or operator.unique or operator.op in _KEPT:
        return None
    present = [constant for constant in inputs if constant is not None]
    known = [type for type in types if type is not None]
    strings = any(t.dtype == onnx.TensorProto.STRING for t in (*known, *(c.type for c in present)))
    if not present or len(known) != operator.outputs or strings:
        return None
    if sum(map(tensor_bytes, known)) > max(LARGEST, sum(map(nbytes, present))):
        return None
    try:
        return fold(operator.op, operator.domain, operator.attrs, inputs, known, opset)
    except InvalidRewriteError:  # the operator has no reference semantics, or fails on these operands
        return None
