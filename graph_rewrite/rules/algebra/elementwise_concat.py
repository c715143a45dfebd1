"""Element-wise operators past Concat, Split and Slice, in both directions; parallel ones merged."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import COMMUTATIVE, Const, Maybe, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, reshape, sizes_of, split, stripped
from graph_rewrite.rules.helpers.elementwise import BINARY, UNARY, apply_like, unary_key
from graph_rewrite.rules.helpers.operands import in_order
from graph_rewrite.rules.helpers.slices import take


class _Elementwise(Rule):
    family = "elementwise"


class UnaryAfterConcat(_Elementwise):
    """f(Concat(x, y, ...)) = Concat(f(x), f(y), ...) for element-wise f"""

    def source(self, op: PatternBuilder, xs: Values, rest: Values) -> Any:
        return op.any_of(UNARY)(op.Concat(xs, axis=op.attr("axis")), rest, _label="f")

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return concat(op, [apply_like(op, m, "f", x, *rest) for x in xs], m.attr("axis"))


class _UnaryBeforeConcat(_Elementwise):
    def check(self, m: Match, *variables: Any) -> Refusal | None:
        return _one_function(m, variables[1::2])

    def target(self, op: ReplacementBuilder, m: Match, *variables: Any) -> Any:
        return apply_like(op, m, "f0", concat(op, variables[::2], m.attr("axis")), *variables[1])


class UnaryBeforeConcat2(_UnaryBeforeConcat):
    """Concat(f(x), f(y)) = f(Concat(x, y)) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, r: Values, y: Any, s: Values) -> Any:
        f = op.any_of(UNARY)
        return op.Concat(f(x, r, _label="f0"), f(y, s, _label="f1"), axis=op.attr("axis"))


class UnaryBeforeConcat3(_UnaryBeforeConcat):
    """Concat(f(x), f(y), f(z)) = f(Concat(x, y, z)) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, r: Values, y: Any, s: Values, z: Any, t: Values) -> Any:
        f = op.any_of(UNARY)
        parts = (f(x, r, _label="f0"), f(y, s, _label="f1"), f(z, t, _label="f2"))
        return op.Concat(*parts, axis=op.attr("axis"))


class _UnaryAfterSplit(_Elementwise):
    outputs: int

    def check(self, m: Match, x: Ref, sizes: Ref | None, *rests: tuple[Ref, ...]) -> Refusal | None:
        return _one_function(m, rests)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None, *rests: tuple[Ref, ...]) -> Any:
        axis = m.attr("axis") % x.rank
        return split(op, apply_like(op, m, "f0", x, *rests[0]), sizes_of(m, "split", self.outputs, axis), axis)


class UnaryAfterSplit2(_UnaryAfterSplit):
    """f(a), f(b) = Split(f(x)) where a, b = Split(x), for element-wise f"""

    outputs = 2

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe, r: Values, s: Values) -> Any:
        a, b = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=2, _label="split")
        f = op.any_of(UNARY)
        return f(a, r, _label="f0"), f(b, s, _label="f1")


class UnaryAfterSplit3(_UnaryAfterSplit):
    """f(a), f(b), f(c) = Split(f(x)) where a, b, c = Split(x), for element-wise f"""

    outputs = 3

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe, r: Values, s: Values, t: Values) -> Any:
        a, b, c = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=3, _label="split")
        f = op.any_of(UNARY)
        return f(a, r, _label="f0"), f(b, s, _label="f1"), f(c, t, _label="f2")


class _UnaryBeforeSplit(_Elementwise):
    outputs: int

    def source(self, op: PatternBuilder, x: Any, rest: Values, sizes: Maybe) -> Any:
        f = op.any_of(UNARY)(x, rest, _label="f")
        return op.Split(f, sizes, axis=op.attr("axis", 0), _outputs=self.outputs, _label="split")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], sizes: Ref | None) -> Any:
        axis = m.attr("axis") % x.rank
        parts = split(op, x, sizes_of(m, "split", self.outputs, axis), axis)
        return tuple(apply_like(op, m, "f", part, *rest) for part in parts)


class UnaryBeforeSplit2(_UnaryBeforeSplit):
    """Split(f(x)) = f(a), f(b) where a, b = Split(x), for element-wise f"""

    outputs = 2


class UnaryBeforeSplit3(_UnaryBeforeSplit):
    """Split(f(x)) = f(a), f(b), f(c) where a, b, c = Split(x), for element-wise f"""

    outputs = 3


class UnaryBeforeSlice(_Elementwise):
    """Slice(f(x)) = f(Slice(x)) for element-wise f; so for Gather"""

    def source(self, op: PatternBuilder, x: Any, rest: Values, which: Values) -> Any:
        return op.any_of({"Slice", "Gather"})(op.any_of(UNARY)(x, rest, _label="f"), which, _label="slice")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rest: tuple[Ref, ...], which: tuple[Ref, ...]) -> Any:
        return apply_like(op, m, "f", apply_like(op, m, "slice", x, *which), *rest)


class UnaryAfterSlice(_Elementwise):
    """f(Slice(x)) = Slice(f(x)) for element-wise f; so for Gather"""

    def source(self, op: PatternBuilder, x: Any, which: Values, rest: Values) -> Any:
        return op.any_of(UNARY)(op.any_of({"Slice", "Gather"})(x, which, _label="slice"), rest, _label="f")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, which: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return apply_like(op, m, "slice", apply_like(op, m, "f", x, *rest), *which)


class BinaryAfterConcats(_Elementwise):
    """f(Concat(a, b, ...), Concat(c, d, ...)) = Concat(f(a, c), f(b, d), ...) for element-wise f"""

    def source(self, op: PatternBuilder, xs: Values, ys: Values) -> Any:
        left, right = op.Concat(xs, axis=op.attr("left")), op.Concat(ys, axis=op.attr("right"))
        return op.any_of(BINARY)(left, right, _label="f")

    def check(self, m: Match, xs: tuple[Ref, ...], ys: tuple[Ref, ...]) -> Refusal | None:
        rank = xs[0].rank
        if rank != ys[0].rank or m.attr("left") % rank != m.attr("right") % rank:
            return Refusal("the operands are joined along different axes")
        axis = m.attr("left") % rank
        alike = [x.shape[axis] for x in xs] == [y.shape[axis] for y in ys]
        return None if alike else Refusal("the operands are joined from parts of different sizes")

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], ys: tuple[Ref, ...]) -> Any:
        return concat(op, [apply_like(op, m, "f", x, y) for x, y in zip(xs, ys, strict=True)], m.attr("left"))


class BinaryAfterConcat(_Elementwise):
    """f(Concat(x, y, ...), c) = Concat(f(x, part of c), f(y, part of c), ...) for element-wise f and constant c"""

    def source(self, op: PatternBuilder, xs: Values, c: Const) -> Any:
        joined = op.Concat(xs, axis=op.attr("axis"), _label="concat")
        return op.any_of(BINARY)(joined, c, _label="f", _any_order=True)

    def check(self, m: Match, xs: tuple[Ref, ...], c: Ref) -> Refusal | None:
        return _spans(m, m.value("concat"), m.attr("axis"))

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], c: Ref) -> Any:
        joined, parts, offset = m.value("concat"), [], 0
        axis = m.attr("axis") % joined.rank
        for x in xs:
            size = x.shape[axis]
            operands = in_order(m, "f", joined, x, _part(op, c, joined.rank, axis, range(offset, offset + size)))
            parts.append(apply_like(op, m, "f", *operands))
            offset += size
        return concat(op, parts, m.attr("axis"))


class _ConstantsAfterSplit(_Elementwise):
    outputs: int

    def check(self, m: Match, x: Ref, sizes: Ref | None, *constants: Ref) -> Refusal | None:
        axis = m.attr("axis") % x.rank
        labels = [f"f{i}" for i in range(self.outputs)]
        if len({m.node(label).signature for label in labels}) > 1:
            return Refusal("the functions differ")
        sides = {m.node(label).inputs[0] == m.value("split", i).external for i, label in enumerate(labels)}
        if len(sides) > 1 and m.node("f0").op not in COMMUTATIVE:
            return Refusal("the constants are on different sides")
        if any(m.value(label).shape != m.value("split", i).shape for i, label in enumerate(labels)):
            return Refusal("a constant broadcasts its part of the split")
        aligned = {_rank_shape(c, x.rank)[:axis] + _rank_shape(c, x.rank)[axis + 1 :] for c in constants}
        return None if len(aligned) == 1 else Refusal("the constants differ in shape")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None, *constants: Ref) -> Any:
        axis = m.attr("axis") % x.rank
        parts = sizes_of(m, "split", self.outputs, axis)
        wide = []
        for c, size in zip(constants, parts, strict=True):
            shape = _rank_shape(c, x.rank)
            whole = (*shape[:axis], size, *shape[axis + 1 :])
            wide.append(c if whole == c.shape else op.Expand(c, op.ints(*whole)))
        joined = concat(op, wide, axis)
        operand = reshape(op, joined, stripped(joined.shape))
        return split(op, apply_like(op, m, "f0", *in_order(m, "f0", m.value("split", 0), x, operand)), parts, axis)


class ConstantsAfterSplit2(_ConstantsAfterSplit):
    """f(a, c), f(b, d) = Split(f(x, Concat(c, d))) where a, b = Split(x), for element-wise f and constants c, d"""

    outputs = 2

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe, c: Const, d: Const) -> Any:
        parts = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=2, _label="split")
        f = op.any_of(BINARY)
        return tuple(
            f(p, k, _label=f"f{i}", _any_order=True) for i, (p, k) in enumerate(zip(parts, (c, d), strict=True))
        )


class ConstantsAfterSplit3(_ConstantsAfterSplit):
    """f(a, k), f(b, l), f(c, m) = Split(f(x, Concat(k, l, m))) where a, b, c = Split(x), for element-wise f and
    constants k, l, m"""

    outputs = 3

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe, c: Const, d: Const, e: Const) -> Any:
        parts = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=3, _label="split")
        f = op.any_of(BINARY)
        return tuple(
            f(p, k, _label=f"f{i}", _any_order=True) for i, (p, k) in enumerate(zip(parts, (c, d, e), strict=True))
        )


def _one_function(m: Match, rests: tuple[tuple[Ref, ...], ...]) -> Refusal | None:
    keys = {unary_key(m, f"f{i}", rest) for i, rest in enumerate(rests)}
    return None if len(keys) == 1 else Refusal("the functions differ")


def _spans(m: Match, joined: Ref, axis: int) -> Refusal | None:
    return None if m.value("f").shape == joined.shape else Refusal("the constant broadcasts the result of the Concat")


def _rank_shape(c: Ref, rank: int) -> tuple[int, ...]:
    """Return the shape of an operand as broadcasting among `rank` axes sees it."""
    return (*(1,) * (rank - c.rank), *c.shape)


def _part(op: ReplacementBuilder, c: Ref, rank: int, axis: int, wanted: range) -> Ref:
    """Return what a range along an axis, of a value of `rank` axes, covers of the operand c."""
    own = axis - (rank - c.rank)
    return c if own < 0 or c.shape[own] == 1 else take(op, c, {own: wanted})


RULES = (
    UnaryAfterConcat, UnaryBeforeConcat2, UnaryBeforeConcat3, UnaryAfterSplit2, UnaryAfterSplit3, UnaryBeforeSplit2,
    UnaryBeforeSplit3, UnaryBeforeSlice, UnaryAfterSlice,
    BinaryAfterConcats, BinaryAfterConcat, ConstantsAfterSplit2, ConstantsAfterSplit3,
)  # fmt: skip
