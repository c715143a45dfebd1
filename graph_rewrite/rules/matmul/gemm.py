"""Gemm and MatMul: the bias, the transposition flags and the factors of Gemm, in both directions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape, transpose
from graph_rewrite.rules.helpers.constants import as_vector, varies_along
from graph_rewrite.rules.helpers.element_types import is_float, numpy_dtype


class _Gemm(Rule):
    family = "gemm"


def _factor(op: ReplacementBuilder, value: Ref, factor: float) -> Ref:
    if factor == 1.0:
        return value
    scaled: Ref = op.Mul(value, op.constant(np.array(factor, dtype=numpy_dtype(value))))
    return scaled


class MatMulAddToGemm(_Gemm):
    """Add(MatMul(a, b), c) = Gemm(a, b, c) for matrices"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.MatMul(a, b), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return _no_gemm(a) or _not_matrices(a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.Gemm(a, b, c)


class MatMulToGemm(_Gemm):
    """MatMul(a, b) = Gemm(a, b) for matrices"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.MatMul(a, b)

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _no_gemm(a) or _not_matrices(a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        return op.Gemm(a, b)


def _no_gemm(operand: Ref) -> Refusal | None:
    """Refuse integers, which ONNX Runtime multiplies in MatMul alone."""
    return None if is_float(operand) else Refusal("Gemm runs on floating-point numbers only")


def _not_matrices(*operands: Ref) -> Refusal | None:
    if any(operand.rank != 2 for operand in operands):
        return Refusal("an operand is not a matrix")
    return None


class GemmToMatMul(_Gemm):
    """Gemm(a, b, alpha, transA, transB) = MatMul(alpha * a, b), transposed where the flags say so"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.Gemm(a, b, None, _label="gemm")

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        return _scaled_integers(m, a)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        return _product(op, m.attrs("gemm"), a, b)


class GemmToMatMulAdd(_Gemm):
    """Gemm(a, b, c, alpha, beta, transA, transB) = Add(MatMul(alpha * a, b), beta * c), transposed where the flags
    say so"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Gemm(a, b, c, _label="gemm")

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return _scaled_integers(m, a)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        attrs = m.attrs("gemm")
        return op.Add(_product(op, attrs, a, b), _factor(op, c, attrs.get("beta", 1.0)))


def _scaled_integers(m: Match, a: Ref) -> Refusal | None:
    attrs = m.attrs("gemm")
    if not is_float(a) and (attrs.get("alpha", 1.0), attrs.get("beta", 1.0)) != (1.0, 1.0):
        return Refusal("alpha and beta of integer matrices may not be whole numbers")
    return None


def _product(op: ReplacementBuilder, attrs: dict[str, Any], a: Ref, b: Ref) -> Ref:
    a = transpose(op, a, (1, 0)) if attrs.get("transA", 0) else a
    b = transpose(op, b, (1, 0)) if attrs.get("transB", 0) else b
    alpha = attrs.get("alpha", 1.0)
    # The factor goes into a constant where there is one.
    product: Ref = op.MatMul(a, _factor(op, b, alpha)) if b.is_const else op.MatMul(_factor(op, a, alpha), b)
    return product


class FoldGemmAttributes(_Gemm):
    """Gemm(a, w, c, alpha, beta, transB) = Gemm(a, alpha * w, beta * c), w transposed; w and c constant"""

    def source(self, op: PatternBuilder, a: Any, w: Const, c: MaybeConst) -> Any:
        return op.Gemm(a, w, c, _label="gemm")

    def check(self, m: Match, a: Ref, w: Ref, c: Ref | None) -> Refusal | None:
        attrs = m.attrs("gemm")
        plain = {"alpha": 1.0, "beta": 1.0, "transB": 0}
        if all(attrs.get(name, value) == value for name, value in plain.items()):
            return Refusal("nothing to fold: alpha and beta are 1 and the weight is not transposed")
        return _scaled_integers(m, a)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, w: Ref, c: Ref | None) -> Any:
        attrs = m.attrs("gemm")
        w = _factor(op, transpose(op, w, (1, 0)) if attrs.get("transB", 0) else w, attrs.get("alpha", 1.0))
        c = None if c is None else _factor(op, c, attrs.get("beta", 1.0))
        return op.Gemm(a, w, c, transA=attrs.get("transA", 0) or None)


class _TransposeIntoGemm(_Gemm):
    def check(self, m: Match, a: Ref, b: Ref, c: Ref | None) -> Refusal | None:
        # The permutation of a matrix is the exchange, left out or written, or the identity.
        return Refusal("the Transpose does nothing") if m.attr("perm") == (0, 1) else None

    def flipped(self, m: Match, flag: str) -> dict[str, Any]:
        """Return the attributes of the Gemm with one flag the other way."""
        attrs = m.attrs("gemm")
        return {**attrs, flag: None if attrs.get(flag, 0) else 1}


class TransposeIntoGemmLeft(_TransposeIntoGemm):
    """Gemm(Transpose(a), b, c, transA) = Gemm(a, b, c, not transA)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: MaybeConst) -> Any:
        return op.Gemm(op.Transpose(a, perm=op.attr("perm")), b, c, _label="gemm")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref | None) -> Any:
        return op.Gemm(a, b, c, **self.flipped(m, "transA"))


class TransposeIntoGemmRight(_TransposeIntoGemm):
    """Gemm(a, Transpose(b), c, transB) = Gemm(a, b, c, not transB)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: MaybeConst) -> Any:
        return op.Gemm(a, op.Transpose(b, perm=op.attr("perm")), c, _label="gemm")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref | None) -> Any:
        return op.Gemm(a, b, c, **self.flipped(m, "transB"))


class LinearToGemm(_Gemm):
    """Add(MatMul(x, w), b) = Reshape(Gemm(Reshape(x), w, b)), where the Reshapes merge and restore the leading axes
    of x, w is a constant matrix and b constant per column"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const) -> Any:
        return op.Add(op.MatMul(x, w), b)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref) -> Refusal | None:
        if w.rank != 2:
            return Refusal("the weight is not a matrix")
        if x.rank < 3:
            return Refusal("the operand has no leading axes to merge")
        if not varies_along(b, 1, w.shape[1]):
            return Refusal("the bias varies along more than the columns")
        return _no_gemm(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref) -> Any:
        rows = reshape(op, x, (math.prod(x.shape[:-1]), x.shape[-1]))
        return reshape(op, op.Gemm(rows, w, as_vector(op, b, w.shape[1])), (*x.shape[:-1], w.shape[1]))


class GemmToLinear(_Gemm):
    """Reshape(Gemm(Reshape(x), w, b)) = Add(MatMul(x, w), b), where the Reshapes merge and restore the leading axes
    of x, w and b are constant and b varies along columns"""

    def source(self, op: PatternBuilder, x: Any, rows: Const, w: Const, b: Const, shape: Const) -> Any:
        return op.Reshape(op.Gemm(op.Reshape(x, rows), w, b, _label="gemm"), shape)

    def check(self, m: Match, x: Ref, rows: Ref, w: Ref, b: Ref, shape: Ref) -> Refusal | None:
        attrs = m.attrs("gemm")
        if attrs.get("transA", 0):
            return Refusal("the left operand is transposed")
        features = w.shape[1 if attrs.get("transB", 0) else 0]
        columns = m.value("gemm").shape[1]
        if x.shape[-1:] != (features,) or m.root().shape != (*x.shape[:-1], columns):
            return Refusal("the Reshapes do more than merge and restore leading axes")
        if not varies_along(b, 1, columns):
            return Refusal("the bias varies along more than the columns")
        return _scaled_integers(m, x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rows: Ref, w: Ref, b: Ref, shape: Ref) -> Any:
        attrs = m.attrs("gemm")
        bias = as_vector(op, b, m.root().shape[-1])
        return op.Add(_product(op, attrs, x, w), _factor(op, bias, attrs.get("beta", 1.0)))


RULES = (
    FoldGemmAttributes, GemmToMatMul, GemmToMatMulAdd, MatMulAddToGemm, MatMulToGemm, TransposeIntoGemmLeft,
    TransposeIntoGemmRight, LinearToGemm, GemmToLinear,
)  # fmt: skip
