"""ONNX Runtime's FusedMatMul: alpha * MatMul(a, b) with the last two axes of either operand exchanged on the way."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.fusion.kernels import refuse_kernel
from graph_rewrite.rules.helpers.axes import permutation, swapped


class _FusedMatMul(Rule):
    family = "fusion"


def _fused(op: ReplacementBuilder, a: Ref, b: Ref, alpha: float, trans_a: int, trans_b: int) -> Any:
    """Return a FusedMatMul; attributes at their default are left out, so that equal nodes have equal signatures."""
    return op.ms.FusedMatMul(
        a, b, alpha=None if alpha == 1.0 else alpha, transA=trans_a or None, transB=trans_b or None
    )


def _attrs(m: Match) -> tuple[float, int, int]:
    attrs = m.attrs("product")
    return attrs.get("alpha", 1.0), attrs.get("transA", 0), attrs.get("transB", 0)


def _refuse_batches(m: Match) -> Refusal | None:
    """Refuse a FusedMatMul that exchanges the axis of rows or columns of an operand with its batches."""
    attrs = m.attrs("product")
    batched = attrs.get("transBatchA", 0) or attrs.get("transBatchB", 0)
    return Refusal("the product exchanges axes with its batches") if batched else None


def _refuse_transpose(m: Match, a: Ref, b: Ref) -> Refusal | None:
    operand = m.value("transpose")
    if operand.rank < 2 or permutation(m.attr("perm"), operand.rank) != swapped(operand.rank):
        return Refusal("the Transpose does more than exchange the last two axes")
    return Refusal("an operand is a vector") if min(a.rank, b.rank) < 2 else refuse_kernel(a)


def _refuse_scale(a: Ref, b: Ref, alpha: float) -> Refusal | None:
    if not np.isfinite(alpha):
        return Refusal(f"the scale is {alpha}")
    return Refusal("an operand is a vector") if min(a.rank, b.rank) < 2 else refuse_kernel(a)


class FuseLeftTranspose(_FusedMatMul):
    """MatMul(Transpose(a), b) = FusedMatMul(a, b; transA=1)"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.MatMul(op.Transpose(a, perm=op.attr("perm"), _label="transpose"), b)

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _refuse_transpose(m, a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        return _fused(op, a, b, 1.0, 1, 0)


class FuseRightTranspose(_FusedMatMul):
    """MatMul(a, Transpose(b)) = FusedMatMul(a, b; transB=1)"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.MatMul(a, op.Transpose(b, perm=op.attr("perm"), _label="transpose"))

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _refuse_transpose(m, a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        return _fused(op, a, b, 1.0, 0, 1)


class FuseScaledMatMul(_FusedMatMul):
    """MatMul(a, b) * c = FusedMatMul(a, b; alpha=c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Scalar) -> Any:
        return op.Mul(op.MatMul(a, b), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return _refuse_scale(a, b, c.scalar())

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return _fused(op, a, b, c.scalar(), 0, 0)


class FuseDividedMatMul(_FusedMatMul):
    """MatMul(a, b) / c = FusedMatMul(a, b; alpha=1/c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Scalar) -> Any:
        return op.Div(op.MatMul(a, b), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return _refuse_scale(a, b, 1.0 / c.scalar() if c.scalar() else np.inf)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return _fused(op, a, b, 1.0 / c.scalar(), 0, 0)


class FuseLeftTransposeMore(_FusedMatMul):
    """FusedMatMul(Transpose(a), b; transA=t) = FusedMatMul(a, b; transA=1-t)"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.ms.FusedMatMul(op.Transpose(a, perm=op.attr("perm"), _label="transpose"), b, _label="product")

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _refuse_batches(m) or _refuse_transpose(m, a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        alpha, trans_a, trans_b = _attrs(m)
        return _fused(op, a, b, alpha, 1 - trans_a, trans_b)


class FuseRightTransposeMore(_FusedMatMul):
    """FusedMatMul(a, Transpose(b); transB=t) = FusedMatMul(a, b; transB=1-t)"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.ms.FusedMatMul(a, op.Transpose(b, perm=op.attr("perm"), _label="transpose"), _label="product")

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _refuse_batches(m) or _refuse_transpose(m, a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        alpha, trans_a, trans_b = _attrs(m)
        return _fused(op, a, b, alpha, trans_a, 1 - trans_b)


class FuseScaleMore(_FusedMatMul):
    """FusedMatMul(a, b; alpha) * c = FusedMatMul(a, b; alpha * c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Scalar) -> Any:
        return op.Mul(op.ms.FusedMatMul(a, b, _label="product"), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return _refuse_batches(m) or _refuse_scale(a, b, c.scalar())

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        alpha, trans_a, trans_b = _attrs(m)
        return _fused(op, a, b, alpha * c.scalar(), trans_a, trans_b)


class SplitFusedMatMul(_FusedMatMul):
    """FusedMatMul(a, b; alpha, transA, transB) = MatMul(Transpose(a), Transpose(b)) * alpha"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.ms.FusedMatMul(a, b, _label="product")

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _refuse_batches(m) or (Refusal("an operand is a vector") if min(a.rank, b.rank) < 2 else None)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        alpha, trans_a, trans_b = _attrs(m)
        a = op.Transpose(a, perm=swapped(a.rank)) if trans_a else a
        b = op.Transpose(b, perm=swapped(b.rank)) if trans_b else b
        product = op.MatMul(a, b)
        return product if alpha == 1.0 else op.Mul(product, op.constant(np.array(alpha, np.float32)))


RULES = (
    FuseLeftTranspose,
    FuseRightTranspose,
    FuseScaledMatMul,
    FuseDividedMatMul,
    FuseLeftTransposeMore,
    FuseRightTransposeMore,
    FuseScaleMore,
    SplitFusedMatMul,
)
