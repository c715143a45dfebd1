"""MatMul algebra: associativity, distribution over sums, transposes, identity matrices.

MatMul of a vector contracts and drops an axis, so the equations hold for operands of rank 2 or more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import permutation, reshape, swapped, transpose
from graph_rewrite.rules.helpers.constants import is_readable
from graph_rewrite.rules.helpers.operands import ordered


class _MatMul(Rule):
    family = "matmul"


def vectors_refused(*operands: Ref) -> Refusal | None:
    """Refuse an operand of a MatMul that is a vector."""
    if any(operand.rank < 2 for operand in operands):
        return Refusal("an operand of MatMul is a vector")
    return None


def _product_refused(a: Ref, b: Ref) -> Refusal | None:
    """Refuse a product of constants that would inflate the model: two thin factors can stand for a huge matrix."""
    if not (a.is_const and b.is_const):
        return None
    size = int(np.prod(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]))) * a.shape[-2] * b.shape[-1]
    if size > a.type.size + b.type.size:
        return Refusal(f"the product of the constants has {size} elements, both together {a.type.size + b.type.size}")
    return None


class AssociateMatMulRight(_MatMul):
    """MatMul(MatMul(a, b), c) = MatMul(a, MatMul(b, c))"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.MatMul(op.MatMul(a, b), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return vectors_refused(a, b, c) or _product_refused(b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(a, op.MatMul(b, c))


class AssociateMatMulLeft(_MatMul):
    """MatMul(a, MatMul(b, c)) = MatMul(MatMul(a, b), c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.MatMul(a, op.MatMul(b, c))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return vectors_refused(a, b, c) or _product_refused(a, b)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(op.MatMul(a, b), c)


class FactorLeftOperand(_MatMul):
    """Add(MatMul(a, b), MatMul(a, c)) = MatMul(a, Add(b, c))"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.MatMul(a, b), op.MatMul(a, c))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return vectors_refused(a, b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(a, op.Add(b, c) if ordered(b, c) else op.Add(c, b))


class FactorRightOperand(_MatMul):
    """Add(MatMul(a, c), MatMul(b, c)) = MatMul(Add(a, b), c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.MatMul(a, c), op.MatMul(b, c))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return vectors_refused(a, b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.MatMul(op.Add(a, b) if ordered(a, b) else op.Add(b, a), c)


class DistributeOverRightSum(_MatMul):
    """MatMul(a, Add(b, c)) = Add(MatMul(a, b), MatMul(a, c))"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.MatMul(a, op.Add(b, c))

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        if b.rank >= 2 and c.rank >= 2 and b.shape[-2] != c.shape[-2]:
            return Refusal("one summand is broadcast along the contracted axis")
        return vectors_refused(a, b, c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        b, c = (b, c) if ordered(b, c) else (c, b)
        return op.Add(op.MatMul(a, b), op.MatMul(a, c))


class DistributeOverLeftSum(_MatMul):
    """MatMul(Add(a, b), c) = Add(MatMul(a, c), MatMul(b, c))

    A vector b, such as a bias that is added before the product, is taken as one row.
    """

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.MatMul(op.Add(a, b), c)

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        if a.rank < 2:
            return Refusal("the first summand is a vector")
        if b.rank == 0 or a.shape[-1] != b.shape[-1]:
            return Refusal("one summand is broadcast along the contracted axis")
        return vectors_refused(c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        if b.rank == 1:
            # A constant row times a matrix stays a vector, the usual form of a bias.
            keep = b.is_const and c.is_const and c.rank == 2
            return op.Add(op.MatMul(a, c), op.MatMul(b if keep else reshape(op, b, (1, b.shape[0])), c))
        a, b = (a, b) if ordered(a, b) else (b, a)
        return op.Add(op.MatMul(a, c), op.MatMul(b, c))


def _exchanged(op: ReplacementBuilder, x: Ref) -> Ref:
    return transpose(op, x, swapped(x.rank))


class TransposedTimesConstant(_MatMul):
    """MatMul(Transpose(a), w) = Transpose(MatMul(Transpose(w), a)), w constant"""

    def source(self, op: PatternBuilder, a: Any, w: Const) -> Any:
        return op.MatMul(op.Transpose(a, perm=op.attr("perm")), w)

    def check(self, m: Match, a: Ref, w: Ref) -> Refusal | None:
        if permutation(m.attr("perm"), a.rank) != swapped(a.rank):
            return Refusal("the permutation is not an exchange of the last two axes")
        return vectors_refused(a, w)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, w: Ref) -> Any:
        return _exchanged(op, op.MatMul(_exchanged(op, w), a))


class ConstantTimesTransposed(_MatMul):
    """MatMul(w, Transpose(a)) = Transpose(MatMul(a, Transpose(w))), w constant"""

    def source(self, op: PatternBuilder, a: Any, w: Const) -> Any:
        return op.MatMul(w, op.Transpose(a, perm=op.attr("perm")))

    def check(self, m: Match, a: Ref, w: Ref) -> Refusal | None:
        if permutation(m.attr("perm"), a.rank) != swapped(a.rank):
            return Refusal("the permutation is not an exchange of the last two axes")
        return vectors_refused(a, w)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, w: Ref) -> Any:
        return _exchanged(op, op.MatMul(a, _exchanged(op, w)))


def _not_identity(w: Ref) -> Refusal | None:
    if w.rank != 2 or w.shape[0] != w.shape[1] or not w.type.size:
        return Refusal("the constant is not a square matrix")
    if w.constant is None or not is_readable(w.constant):
        return Refusal("the constant's elements are not read during search")
    elements = w.numpy()
    if elements[0, 0] != 1 or not np.array_equal(elements, np.eye(w.shape[0], dtype=elements.dtype)):
        return Refusal("the constant is not the identity matrix")
    return None


class DropIdentityOnRight(_MatMul):
    """MatMul(x, I) = x, where I is the identity matrix"""

    def source(self, op: PatternBuilder, x: Any, w: Const) -> Any:
        return op.MatMul(x, w)

    def check(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        return _not_identity(w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
        return x


class DropIdentityOnLeft(_MatMul):
    """MatMul(I, x) = x, where I is the identity matrix"""

    def source(self, op: PatternBuilder, x: Any, w: Const) -> Any:
        return op.MatMul(w, x)

    def check(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        return _not_identity(w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
        return x


RULES = (
    DropIdentityOnRight, DropIdentityOnLeft, AssociateMatMulRight, AssociateMatMulLeft, FactorLeftOperand,
    FactorRightOperand, DistributeOverRightSum, DistributeOverLeftSum, TransposedTimesConstant, ConstantTimesTransposed,
)  # fmt: skip
