"""ONNX Runtime's fused kernels: the element types for which they exist."""

from __future__ import annotations

from onnx import TensorProto

from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.rule import Refusal


def refuse_kernel(ref: Ref) -> Refusal | None:
    """Refuse elements other than float32: ONNX Runtime's fused kernels for the CPU exist for these alone."""
    return None if ref.dtype == TensorProto.FLOAT else Refusal("the fused operator runs in float32 only")
