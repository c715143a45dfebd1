"""Element types of the source graphs that are made for a rule."""

from __future__ import annotations

from functools import lru_cache

import onnx
from onnx import TensorProto

from graph_rewrite.onnx_files.assembly import OPSET
from graph_rewrite.rewriting.patterns import Pattern

DTYPES = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.INT32,
)  # fmt: skip
DTYPE_WEIGHTS = (20, 2, 3, 1, 1, 1)
"""The weights by which `DTYPES` are drawn."""


def element_types_of(pattern: Pattern) -> frozenset[int]:
    """Return those of `DTYPES` that the data of a pattern may have, as far as its operators tell."""
    usable = frozenset(DTYPES)
    for node in pattern.nodes:
        if node.domain:
            usable &= {TensorProto.FLOAT, TensorProto.FLOAT16}
        elif not node.operators & _CHANGES_TYPE:
            usable &= frozenset().union(*(element_types(op, 0) for op in node.operators))
        else:
            return frozenset(DTYPES)
    return usable or frozenset(DTYPES)


_CHANGES_TYPE = frozenset({"Cast", "Where", "Equal", "Less", "Greater", "IsNaN", "IsInf"})


@lru_cache(maxsize=4096)
def element_types(op: str, i: int) -> frozenset[int]:
    """Return the element types that a standard operator accepts as input i; none where the operator set lacks it."""
    if not onnx.defs.has(op, OPSET, ""):
        return frozenset()
    schema = onnx.defs.get_schema(op, OPSET)
    names = schema.inputs[min(i, len(schema.inputs) - 1)].types
    known = {f"tensor({TensorProto.DataType.Name(dtype).lower()})": dtype for dtype in DTYPES}
    return frozenset(known[name] for name in names if name in known)
