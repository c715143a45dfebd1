"""Movement of Transpose, in both directions: past element-wise operators, Concat, Split, normalisations and MatMul."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, inverse, permutation, reshape, sizes_of, split, stripped, transpose
from graph_rewrite.rules.helpers.elementwise import BINARY, UNARY, apply_like
from graph_rewrite.rules.helpers.operands import in_order, refuse_broadcast_scale

NORMALISATIONS = frozenset({"Softmax", "LogSoftmax", "Hardmax", "LayerNormalization", "RMSNormalization"})
ONE_AXIS = frozenset({"Softmax", "LogSoftmax", "Hardmax"})
"""Normalisations that work along one axis; the others work over all axes from `axis` to the last."""


class _Movement(Rule):
    family = "movement"


class TransposeAfterUnary(_Movement):
    """f(Transpose(x, p)) = Transpose(f(x), p) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, rest: Values) -> Any:
        return op.any_of(UNARY)(op.Transpose(x, perm=op.attr("p")), rest, _label="f")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Any:
        return transpose(op, apply_like(op, m, "f", x, *rest), permutation(m.attr("p"), x.rank))


class TransposeBeforeUnary(_Movement):
    """Transpose(f(x), p) = f(Transpose(x, p)) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, rest: Values) -> Any:
        return op.Transpose(op.any_of(UNARY)(x, rest, _label="f"), perm=op.attr("p"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Any:
        return apply_like(op, m, "f", transpose(op, x, permutation(m.attr("p"), x.rank)), *rest)


class TransposesAfterBinary(_Movement):
    """f(Transpose(x, p), Transpose(y, p)) = Transpose(f(x, y), p) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        left, right = op.Transpose(x, perm=op.attr("p")), op.Transpose(y, perm=op.attr("q"))
        return op.any_of(BINARY)(left, right, _label="f")

    def check(self, m: Match, x: Ref, y: Ref) -> Refusal | None:
        if x.rank != y.rank:
            return Refusal("the operands have different ranks")
        same = permutation(m.attr("p"), x.rank) == permutation(m.attr("q"), x.rank)
        return None if same else Refusal("the permutations differ")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        return transpose(op, apply_like(op, m, "f", x, y), permutation(m.attr("p"), x.rank))


class TransposeAfterBinary(_Movement):
    """f(Transpose(x, p), c) = Transpose(f(x, Transpose(c, inverse of p)), p) for element-wise f and constant c"""

    def source(self, op: PatternBuilder, x: Any, c: Any) -> Any:
        return op.any_of(BINARY)(op.Transpose(x, perm=op.attr("p"), _label="t"), c, _label="f", _any_order=True)

    def check(self, m: Match, x: Ref, c: Ref) -> Refusal | None:
        if not c.is_const and c.type.size != 1:
            return Refusal("the other operand is not constant and not single")
        return _fits(c, x.rank)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        moved = _permuted(op, c, inverse(perm))
        return transpose(op, apply_like(op, m, "f", *in_order(m, "f", m.value("t"), x, moved)), perm)


class TransposeBeforeBinary(_Movement):
    """Transpose(f(x, y), p) = f(Transpose(x, p), Transpose(y, p)) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.Transpose(op.any_of(BINARY)(x, y, _label="f"), perm=op.attr("p"))

    def check(self, m: Match, x: Ref, y: Ref) -> Refusal | None:
        return _fits(x, m.root().rank) or _fits(y, m.root().rank)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        perm = permutation(m.attr("p"), m.root().rank)
        return apply_like(op, m, "f", _permuted(op, x, perm), _permuted(op, y, perm))


class TransposesAfterConcat(_Movement):
    """Concat(Transpose(x, p), Transpose(y, p)) = Transpose(Concat(x, y), p)"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        parts = (op.Transpose(part, perm=op.attr("p")) for part in (x, y))
        return op.Concat(*parts, axis=op.attr("axis"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        return transpose(op, concat(op, (x, y), perm[m.attr("axis")]), perm)


class TransposesAfterConcat3(_Movement):
    """Concat(Transpose(x, p), Transpose(y, p), Transpose(z, p)) = Transpose(Concat(x, y, z), p)"""

    def source(self, op: PatternBuilder, x: Any, y: Any, z: Any) -> Any:
        parts = (op.Transpose(part, perm=op.attr("p")) for part in (x, y, z))
        return op.Concat(*parts, axis=op.attr("axis"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, z: Ref) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        return transpose(op, concat(op, (x, y, z), perm[m.attr("axis")]), perm)


class TransposeBeforeConcat(_Movement):
    """Transpose(Concat(x, y, ...), p) = Concat(Transpose(x, p), Transpose(y, p), ...)"""

    def source(self, op: PatternBuilder, xs: Values) -> Any:
        return op.Transpose(op.Concat(xs, axis=op.attr("axis")), perm=op.attr("p"))

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...]) -> Any:
        rank = xs[0].rank
        perm = permutation(m.attr("p"), rank)
        return concat(op, [transpose(op, x, perm) for x in xs], inverse(perm)[m.attr("axis") % rank])


class _TransposeAfterSplit(_Movement):
    outputs: int

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe) -> Any:
        moved = op.Transpose(x, perm=op.attr("p"))
        return op.Split(moved, sizes, axis=op.attr("axis", 0), _outputs=self.outputs, _label="split")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None) -> Any:
        perm, axis = permutation(m.attr("p"), x.rank), m.attr("axis") % x.rank
        parts = split(op, x, sizes_of(m, "split", self.outputs, axis), perm[axis])
        return tuple(transpose(op, part, perm) for part in parts)


class TransposeAfterSplit2(_TransposeAfterSplit):
    """Split(Transpose(x, p)) = Transpose(a, p), Transpose(b, p) where a, b = Split(x)"""

    outputs = 2


class TransposeAfterSplit3(_TransposeAfterSplit):
    """Split(Transpose(x, p)) = Transpose(a, p), Transpose(b, p), Transpose(c, p) where a, b, c = Split(x)"""

    outputs = 3


class _TransposesBeforeSplit(_Movement):
    outputs: int

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe) -> Any:
        parts = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=self.outputs, _label="split")
        return tuple(op.Transpose(part, perm=op.attr("p")) for part in parts)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None) -> Any:
        perm, axis = permutation(m.attr("p"), x.rank), m.attr("axis") % x.rank
        parts = sizes_of(m, "split", self.outputs, axis)
        return split(op, transpose(op, x, perm), parts, inverse(perm)[axis])


class TransposesBeforeSplit2(_TransposesBeforeSplit):
    """Transpose(a, p), Transpose(b, p) = Split(Transpose(x, p)) where a, b = Split(x)"""

    outputs = 2


class TransposesBeforeSplit3(_TransposesBeforeSplit):
    """Transpose(a, p), Transpose(b, p), Transpose(c, p) = Split(Transpose(x, p)) where a, b, c = Split(x)"""

    outputs = 3


class TransposeAfterNormalisation(_Movement):
    """f(Transpose(x, p)) = Transpose(f(x), p) for f in Softmax, LogSoftmax, Hardmax, LayerNormalization,
    RMSNormalization, whose axes follow; several axes must stay the last ones"""

    def source(self, op: PatternBuilder, x: Any, rest: Values) -> Any:
        moved = op.Transpose(x, perm=op.attr("p"))
        return op.any_of(NORMALISATIONS)(moved, rest, axis=op.attr("axis", -1), _label="f")

    def check(self, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Refusal | None:
        return _keeps_axes(m, permutation(m.attr("p"), x.rank), rest)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        return transpose(op, _normalise(op, m, x, rest, perm), perm)


class TransposeBeforeNormalisation(_Movement):
    """Transpose(f(x), p) = f(Transpose(x, p)) for f in Softmax, LogSoftmax, Hardmax, LayerNormalization,
    RMSNormalization, whose axes follow; several axes must stay the last ones"""

    def source(self, op: PatternBuilder, x: Any, rest: Values) -> Any:
        normal = op.any_of(NORMALISATIONS)(x, rest, axis=op.attr("axis", -1), _label="f")
        return op.Transpose(normal, perm=op.attr("p"))

    def check(self, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Refusal | None:
        return _keeps_axes(m, permutation(m.attr("p"), x.rank), rest)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...]) -> Any:
        perm = permutation(m.attr("p"), x.rank)
        return _normalise(op, m, transpose(op, x, perm), rest, inverse(perm))


class MatMulOfTransposes(_Movement):
    """MatMul(Transpose(b), Transpose(a)) = Transpose(MatMul(a, b)), each of the last two axes"""

    def source(self, op: PatternBuilder, b: Any, a: Any) -> Any:
        return op.MatMul(op.Transpose(b, perm=op.attr("p")), op.Transpose(a, perm=op.attr("q")))

    def check(self, m: Match, b: Ref, a: Ref) -> Refusal | None:
        swaps = _swaps_last(m.attr("p"), b.rank) and _swaps_last(m.attr("q"), a.rank)
        return None if swaps else Refusal("a permutation does more than exchange the last two axes")

    def target(self, op: ReplacementBuilder, m: Match, b: Ref, a: Ref) -> Any:
        product = op.MatMul(a, b)
        return transpose(op, product, _last_swapped(product.rank))


class TransposeOfMatMul(_Movement):
    """Transpose(MatMul(a, b)) = MatMul(Transpose(b), Transpose(a)), each of the last two axes"""

    def source(self, op: PatternBuilder, a: Any, b: Any) -> Any:
        return op.Transpose(op.MatMul(a, b), perm=op.attr("p"))

    def check(self, m: Match, a: Ref, b: Ref) -> Refusal | None:
        if a.rank < 2 or b.rank < 2:
            return Refusal("an operand is a vector")
        if not _swaps_last(m.attr("p"), m.root().rank):
            return Refusal("the permutation does more than exchange the last two axes")
        return None

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref) -> Any:
        return op.MatMul(*(transpose(op, operand, _last_swapped(operand.rank)) for operand in (b, a)))


def _fits(y: Ref, rank: int) -> Refusal | None:
    """Tell whether an operand can follow a permutation of `rank` axes without a Reshape at run time."""
    if y.rank == rank or y.is_const or y.type.size == 1:
        return None
    return Refusal("an operand of lower rank is not constant")


def _permuted(op: ReplacementBuilder, y: Ref, perm: tuple[int, ...]) -> Ref:
    """Return an operand that broadcasts to permuted axes as `y` did before; for operands that `_fits`."""
    rank = len(perm)
    if y.rank == rank:
        return transpose(op, y, perm)
    if y.type.size == 1:
        return y
    moved = transpose(op, reshape(op, y, (*(1,) * (rank - y.rank), *y.shape)), perm)
    return reshape(op, moved, stripped(moved.shape))


def _keeps_axes(m: Match, perm: tuple[int, ...], parameters: tuple[Ref, ...]) -> Refusal | None:
    if m.node("f").op in ONE_AXIS:
        return None if m.opset >= 13 else Refusal("before opset 13 Softmax works over several axes")
    first = m.attr("axis") % len(perm)
    if perm[first:] != tuple(range(first, len(perm))):
        return Refusal("the normalised axes do not stay the last ones")
    return refuse_broadcast_scale(parameters, len(perm) - first)


def _normalise(op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], axes: tuple[int, ...]) -> Ref:
    """Apply the matched normalisation to x, with its axis k turned into `axes[k]` and counted from the end if it
    was."""
    node, rank = m.node("f"), len(axes)
    axis = axes[m.attr("axis") % rank]
    attrs = {**node.attrs, "axis": axis - rank if m.attr("axis") < 0 else axis}
    return op.apply(node.op, node.domain, attrs, (x, *rest), 1)[0]


def _last_swapped(rank: int) -> tuple[int, ...]:
    return (*range(rank - 2), rank - 1, rank - 2)


def _swaps_last(perm: tuple[int, ...] | None, rank: int) -> bool:
    return rank >= 2 and permutation(perm, rank) == _last_swapped(rank)


RULES = (
    TransposeAfterUnary, TransposeBeforeUnary, TransposesAfterBinary, TransposeAfterBinary, TransposeBeforeBinary,
    TransposesAfterConcat, TransposesAfterConcat3, TransposeBeforeConcat, TransposeAfterSplit2, TransposeAfterSplit3,
    TransposesBeforeSplit2, TransposesBeforeSplit3, TransposeAfterNormalisation, TransposeBeforeNormalisation,
    MatMulOfTransposes, TransposeOfMatMul,
)  # fmt: skip
