"""MatMul and Concat: products of concatenated operands, and concatenations and sums of products."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.constants import parts
from graph_rewrite.rules.helpers.operands import ordered
from graph_rewrite.rules.matmul.algebra import vectors_refused


class _MatMulConcat(Rule):
    family = "matmul"


class MatMulOfRowConcat(_MatMulConcat):
    """MatMul(Concat(a, b, ..., axis of rows), c) = Concat(MatMul(a, c), MatMul(b, c), ...)"""

    def source(self, op: PatternBuilder, c: Any, operands: Values) -> Any:
        return op.MatMul(op.Concat(operands, axis=op.attr("axis")), c)

    def check(self, m: Match, c: Ref, operands: tuple[Ref, ...]) -> Refusal | None:
        rank = operands[0].rank
        if m.attr("axis") % rank == rank - 1:
            return Refusal("the concatenation is along the contracted axis")
        if c.rank > 2 and m.attr("axis") % rank != rank - 2:
            return Refusal("the right operand has batch axes and the concatenation is not along rows")
        return vectors_refused(c, *operands)

    def target(self, op: ReplacementBuilder, m: Match, c: Ref, operands: tuple[Ref, ...]) -> Any:
        rank = operands[0].rank
        from_right = m.attr("axis") % rank - rank
        results = [op.MatMul(operand, c) for operand in operands]
        return op.Concat(*results, axis=from_right + results[0].rank)


class RowConcatOfMatMuls(_MatMulConcat):
    """Concat(MatMul(a, c), MatMul(b, c), axis of rows) = MatMul(Concat(a, b), c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Concat(op.MatMul(a, c), op.MatMul(b, c), axis=op.attr("axis"))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        rank = m.root().rank
        if a.rank != rank or b.rank != rank:
            return Refusal("the right operand has more axes than the left ones")
        axis = m.attr("axis") % rank
        if axis == rank - 1:
            return Refusal("the concatenation is along columns")
        if c.rank > 2 and axis != rank - 2:
            return Refusal("the right operand has batch axes and the concatenation is not along rows")
        return vectors_refused(a, b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(op.Concat(a, b, axis=m.attr("axis") % a.rank), c)


class ColumnConcatOfMatMuls(_MatMulConcat):
    """Concat(MatMul(a, b), MatMul(a, c), axis of columns) = MatMul(a, Concat(b, c))"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Concat(op.MatMul(a, b), op.MatMul(a, c), axis=op.attr("axis"))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        rank = m.root().rank
        if m.attr("axis") % rank != rank - 1:
            return Refusal("the concatenation is not along columns")
        if b.shape[:-1] != c.shape[:-1]:
            return Refusal("the right operands differ in more than their columns")
        return vectors_refused(a, b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(a, op.Concat(b, c, axis=b.rank - 1))


class MatMulOfFeatureConcat(_MatMulConcat):
    """MatMul(Concat(a, b, last axis), Concat(v, w)) = Add(MatMul(a, v), MatMul(b, w)), v and w constant"""

    def source(self, op: PatternBuilder, a: Any, b: Any, w: Const) -> Any:
        return op.MatMul(op.Concat(a, b, axis=op.attr("axis")), w)

    def check(self, m: Match, a: Ref, b: Ref, w: Ref) -> Refusal | None:
        if w.rank != 2:
            return Refusal("the weight is not a matrix")
        if a.rank < 2 or m.attr("axis") % a.rank != a.rank - 1:
            return Refusal("the concatenation is not along the contracted axis of matrices")
        return None

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, w: Ref) -> Any:
        upper, lower = parts(op, w, (a.shape[-1], b.shape[-1]), axis=0)
        return op.Add(op.MatMul(a, upper), op.MatMul(b, lower))


class SumOfMatMuls(_MatMulConcat):
    """Add(MatMul(a, v), MatMul(b, w)) = MatMul(Concat(a, b, last axis), Concat(v, w)), v and w constant"""

    def source(self, op: PatternBuilder, a: Any, b: Any, v: Const, w: Const) -> Any:
        return op.Add(op.MatMul(a, v), op.MatMul(b, w))

    def check(self, m: Match, a: Ref, b: Ref, v: Ref, w: Ref) -> Refusal | None:
        if v.rank != 2 or w.rank != 2 or v.shape[1] != w.shape[1]:
            return Refusal("the weights are not matrices of equal width")
        if a.rank < 2 or a.shape[:-1] != b.shape[:-1]:
            return Refusal("the left operands differ in more than their last axis")
        if a.is_const or b.is_const or a.external == b.external:
            return Refusal("the left operands are constant or the same")
        return None

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, v: Ref, w: Ref) -> Any:
        if not ordered(a, b):
            a, b, v, w = b, a, w, v
        return op.MatMul(op.Concat(a, b, axis=a.rank - 1), op.Concat(v, w, axis=0))


RULES = (MatMulOfRowConcat, RowConcatOfMatMuls, ColumnConcatOfMatMuls, MatMulOfFeatureConcat, SumOfMatMuls)
