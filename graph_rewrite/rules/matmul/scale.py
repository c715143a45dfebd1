"""Scales around a MatMul: into its constant weight, through its bias, from one operand to the other.

Each equation of Mul that holds for division as well has a subclass for Div. The scale of attention scores goes into
the query projection, where it costs nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import as_scale, finite_reciprocal, varies_along
from graph_rewrite.rules.helpers.element_types import is_float
from graph_rewrite.rules.matmul.algebra import vectors_refused


class _Scale(Rule):
    family = "matmul"
    operator: ClassVar[str] = "Mul"

    def scaled(self, op: Any, value: Any, scale: Any) -> Any:
        """Return `value` times, or divided by, `scale`: in the source and in the target."""
        return getattr(op, self.operator)(value, scale)

    def inexact(self, x: Ref, s: Ref) -> Refusal | None:
        """Refuse a division that cannot be moved: integers round after each one, and quotients by 0 do not add up."""
        if self.operator == "Mul":
            return None
        if not is_float(x):
            return Refusal("integer division does not distribute")
        return None if finite_reciprocal(s) else Refusal("1 / s overflows or is not known")


def _columns_refused(w: Ref, s: Ref) -> Refusal | None:
    if not varies_along(s, 1, w.shape[-1]):
        return Refusal("the scale varies along more than the columns")
    return None


class FoldScaleAfterMatMul(_Scale):
    """Mul(MatMul(x, w), s) = MatMul(x, w * s), w constant and s constant per column"""

    def source(self, op: PatternBuilder, x: Any, w: Const, s: Const) -> Any:
        return self.scaled(op, op.MatMul(x, w), s)

    def check(self, m: Match, x: Ref, w: Ref, s: Ref) -> Refusal | None:
        return vectors_refused(x, w) or _columns_refused(w, s) or self.inexact(x, s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, s: Ref) -> Any:
        return op.MatMul(x, self.scaled(op, w, as_scale(op, s)))


class FoldDivisorAfterMatMul(FoldScaleAfterMatMul):
    """Div(MatMul(x, w), s) = MatMul(x, w / s), w constant and s constant per column"""

    operator = "Div"


class FoldScaleThroughBias(_Scale):
    """Mul(Add(MatMul(x, w), b), s) = Add(MatMul(x, w * s), b * s), w and b constant and s constant per column"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const, s: Const) -> Any:
        return self.scaled(op, op.Add(op.MatMul(x, w), b), s)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref, s: Ref) -> Refusal | None:
        return vectors_refused(x, w) or _columns_refused(w, s) or self.inexact(x, s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref, s: Ref) -> Any:
        s = as_scale(op, s)
        return op.Add(op.MatMul(x, self.scaled(op, w, s)), self.scaled(op, b, s))


class FoldDivisorThroughBias(FoldScaleThroughBias):
    """Div(Add(MatMul(x, w), b), s) = Add(MatMul(x, w / s), b / s), w and b constant and s constant per column"""

    operator = "Div"


class FoldScaleBeforeMatMul(_Scale):
    """MatMul(Mul(x, s), w) = MatMul(x, s * w), w constant and s constant per feature of x"""

    def source(self, op: PatternBuilder, x: Any, w: Const, s: Const) -> Any:
        return op.MatMul(self.scaled(op, x, s), w)

    def check(self, m: Match, x: Ref, w: Ref, s: Ref) -> Refusal | None:
        refusal = vectors_refused(x, w) or self.inexact(x, s)
        if refusal is None and not varies_along(s, 1, w.shape[-2]):
            return Refusal("the scale varies along more than the contracted axis")
        return refusal

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, s: Ref) -> Any:
        return op.MatMul(x, self.scaled(op, w, reshape(op, s, (s.type.size, 1))))


class FoldDivisorBeforeMatMul(FoldScaleBeforeMatMul):
    """MatMul(Div(x, s), w) = MatMul(x, w / s), w constant and s constant per feature of x"""

    operator = "Div"


def _constant_operand(*operands: Ref) -> Refusal | None:
    if any(operand.is_const for operand in operands):
        return Refusal("an operand is constant: the scale can be folded into it")
    return None


class _ScalarMotion(_Scale):
    """A scalar between an operand and the product; `s` stays where it is only if it adds no axes."""

    def check(self, m: Match, a: Ref, b: Ref, s: Ref) -> Refusal | None:
        return _constant_operand(a, b)


class MoveScaleToLeftOperand(_ScalarMotion):
    """Mul(MatMul(a, b), s) = MatMul(Mul(a, s), b), s a constant scalar"""

    def source(self, op: PatternBuilder, a: Any, b: Any, s: Scalar) -> Any:
        return op.Mul(op.MatMul(a, b), s)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, s: Ref) -> Any:
        return op.MatMul(op.Mul(a, as_scale(op, s)), b)


class MoveScaleFromLeftOperand(_ScalarMotion):
    """MatMul(Mul(a, s), b) = Mul(MatMul(a, b), s), s a constant scalar"""

    def source(self, op: PatternBuilder, a: Any, b: Any, s: Scalar) -> Any:
        return op.MatMul(op.Mul(a, s), b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, s: Ref) -> Any:
        return op.Mul(op.MatMul(a, b), as_scale(op, s))


class MoveScaleToRightOperand(_ScalarMotion):
    """Mul(MatMul(a, b), s) = MatMul(a, Mul(b, s)), s a constant scalar"""

    def source(self, op: PatternBuilder, a: Any, b: Any, s: Scalar) -> Any:
        return op.Mul(op.MatMul(a, b), s)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, s: Ref) -> Any:
        return op.MatMul(a, op.Mul(b, as_scale(op, s)))


class MoveScaleFromRightOperand(_ScalarMotion):
    """MatMul(a, Mul(b, s)) = Mul(MatMul(a, b), s), s a constant scalar"""

    def source(self, op: PatternBuilder, a: Any, b: Any, s: Scalar) -> Any:
        return op.MatMul(a, op.Mul(b, s))

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, s: Ref) -> Any:
        return op.Mul(op.MatMul(a, b), as_scale(op, s))


class FoldScoreScaleIntoProjection(_Scale):
    """Mul(MatMul(Transpose(Reshape(Add(MatMul(x, w), b))), k), s) =
    MatMul(Transpose(Reshape(Add(MatMul(x, w * s), b * s))), k), w and b constant and s a constant scalar

    Attention scores: x projected to queries and split into heads, times keys, scaled.
    """

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const, shape: Const, k: Any, s: Scalar) -> Any:
        heads = op.Reshape(op.Add(op.MatMul(x, w), b), shape, _label="reshape")
        return self.scaled(op, op.MatMul(op.Transpose(heads, perm=op.attr("perm")), k), s)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref, shape: Ref, k: Ref, s: Ref) -> Refusal | None:
        return self.inexact(x, s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref, shape: Ref, k: Ref, s: Ref) -> Any:
        s = as_scale(op, s)
        queries = op.Add(op.MatMul(x, self.scaled(op, w, s)), self.scaled(op, b, s))
        heads = op.Reshape(queries, shape, **m.attrs("reshape"))
        return op.MatMul(op.Transpose(heads, perm=m.attr("perm")), k)


class FoldScoreDivisorIntoProjection(FoldScoreScaleIntoProjection):
    """Div(MatMul(Transpose(Reshape(Add(MatMul(x, w), b))), k), s) =
    MatMul(Transpose(Reshape(Add(MatMul(x, w / s), b / s))), k), w and b constant and s a constant scalar"""

    operator = "Div"


RULES = (
    FoldScaleAfterMatMul, FoldDivisorAfterMatMul, FoldScaleThroughBias, FoldDivisorThroughBias, FoldScaleBeforeMatMul,
    FoldDivisorBeforeMatMul, MoveScaleToLeftOperand, MoveScaleFromLeftOperand, MoveScaleToRightOperand,
    MoveScaleFromRightOperand, FoldScoreScaleIntoProjection, FoldScoreDivisorIntoProjection,
)  # fmt: skip
