"""Elimination of moves: Transpose, Reshape and operators like it, Split, Concat and Slice that undo each other or do
nothing."""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, permutation, reshape, sizes_of, transpose
from graph_rewrite.rules.helpers.constants import uniform
from graph_rewrite.rules.helpers.slices import slice_ranges, take

RESHAPES = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze"})
"""Operators that keep the elements in their order and change the shape alone."""


class _Elimination(Rule):
    family = "elimination"


class DropTranspose(_Elimination):
    """Transpose(x, 0 1 2 ...) = x"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Transpose(x, perm=op.attr("p"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        moves = permutation(m.attr("p"), x.rank) != tuple(range(x.rank))
        return Refusal("the permutation moves an axis") if moves else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class ComposeTransposes(_Elimination):
    """Transpose(Transpose(x, p), q) = Transpose(x, q after p)"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Transpose(op.Transpose(x, perm=op.attr("p")), perm=op.attr("q"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        inner, outer = permutation(m.attr("p"), x.rank), permutation(m.attr("q"), x.rank)
        return transpose(op, x, [inner[axis] for axis in outer])


class DropReshape(_Elimination):
    """f(x) = x for f in Reshape, Flatten, Squeeze, Unsqueeze that give the shape of x"""

    def source(self, op: PatternBuilder, x: Any, shape: Values) -> Any:
        return op.any_of(RESHAPES)(x, shape)

    def check(self, m: Match, x: Ref, shape: tuple[Ref, ...]) -> Refusal | None:
        return None if m.root().shape == x.shape else Refusal("the shape changes")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: tuple[Ref, ...]) -> Any:
        return x


class ComposeReshapes(_Elimination):
    """f(g(x)) = Reshape(x) for f and g in Reshape, Flatten, Squeeze, Unsqueeze"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any, first: Values, second: Values) -> Any:
        return op.any_of(RESHAPES)(op.any_of(RESHAPES)(x, first), second)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, first: tuple[Ref, ...], second: tuple[Ref, ...]) -> Any:
        return reshape(op, x, m.root().shape)


class AsReshape(_Elimination):
    """f(x) = Reshape(x, shape) for f in Flatten, Squeeze, Unsqueeze"""

    def source(self, op: PatternBuilder, x: Any, axes: Values) -> Any:
        return op.any_of(RESHAPES - {"Reshape"})(x, axes)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, axes: tuple[Ref, ...]) -> Any:
        return reshape(op, x, m.root().shape)


class _SplitOfConcat(_Elimination):
    """Splits with another number of outputs are rules of their own: a pattern has a fixed number of roots."""

    shared_interior = True
    outputs: int

    def source(self, op: PatternBuilder, xs: Values, sizes: Maybe) -> Any:
        joined = op.Concat(xs, axis=op.attr("joined"))
        return op.Split(joined, sizes, axis=op.attr("axis", 0), _outputs=self.outputs, _label="split")

    def check(self, m: Match, xs: tuple[Ref, ...], sizes: Ref | None) -> Refusal | None:
        if m.attr("joined") % xs[0].rank != m.attr("axis") % xs[0].rank:
            return Refusal("Concat and Split work on different axes")
        return None if self._groups(m, xs) else Refusal("a part of the split lies across two operands")

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], sizes: Ref | None) -> Any:
        return tuple(concat(op, group, m.attr("axis")) for group in self._groups(m, xs) or ())

    def _groups(self, m: Match, xs: tuple[Ref, ...]) -> list[list[Ref]] | None:
        """Return the operands per output of the split; None where an output ends inside an operand."""
        axis = m.attr("axis") % xs[0].rank
        rest, groups = list(xs), []
        for size in sizes_of(m, "split", self.outputs, axis):
            group: list[Ref] = []
            while rest and sum(x.shape[axis] for x in group) < size:
                group.append(rest.pop(0))
            if not group or sum(x.shape[axis] for x in group) != size:
                return None
            groups.append(group)
        return groups


class SplitOfConcat2(_SplitOfConcat):
    """Split(Concat(a, b)) = a, b, where the parts end where operands end"""

    outputs = 2


class SplitOfConcat3(_SplitOfConcat):
    """Split(Concat(a, b, c)) = a, b, c, where the parts end where operands end"""

    outputs = 3


class _ConcatOfSplit(_Elimination):
    shared_interior = True
    outputs: int

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe) -> Any:
        parts = op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=self.outputs)
        return op.Concat(*parts, axis=op.attr("joined"))

    def check(self, m: Match, x: Ref, sizes: Ref | None) -> Refusal | None:
        if m.attr("joined") % x.rank == m.attr("axis") % x.rank:
            return None
        return Refusal("Concat and Split work on different axes")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None) -> Any:
        return x


class ConcatOfSplit2(_ConcatOfSplit):
    """Concat(Split(x)) = x, for two parts"""

    outputs = 2


class ConcatOfSplit3(_ConcatOfSplit):
    """Concat(Split(x)) = x, for three parts"""

    outputs = 3


class DropSlice(_Elimination):
    """Slice(x, all of it) = x"""

    def source(self, op: PatternBuilder, x: Any, starts: Any, ends: Any, axes: Maybe, steps: Maybe) -> Any:
        return op.Slice(x, starts, ends, axes, steps)

    def check(self, m: Match, x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None) -> Refusal | None:
        if steps is not None and uniform(steps) != 1:
            return Refusal("a step is not 1")
        return None if m.root().shape == x.shape else Refusal("the slice leaves something out")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *bounds: Ref | None) -> Any:
        return x


class ComposeSlices(_Elimination):
    """Slice(Slice(x, a), b) = Slice(x, b of a)"""

    shared_interior = True

    def source(
        self, op: PatternBuilder, x: Any, s0: Any, e0: Any, a0: Maybe, k0: Maybe, s1: Any, e1: Any, a1: Maybe, k1: Maybe
    ) -> Any:
        return op.Slice(op.Slice(x, s0, e0, a0, k0, _label="inner"), s1, e1, a1, k1)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *bounds: Any) -> Any:
        inner = slice_ranges(x, *bounds[:4])
        outer = slice_ranges(m.value("inner"), *bounds[4:])
        if isinstance(inner, Refusal):
            return inner
        if isinstance(outer, Refusal):
            return outer
        both = dict(inner)
        for axis, taken in outer.items():
            stop = taken.stop if taken.stop >= 0 else None
            both[axis] = both.get(axis, range(x.shape[axis]))[taken.start : stop : taken.step]
        return take(op, x, both)


class SliceOfConcat(_Elimination):
    """Slice(Concat(a, b, c)) = Concat(slices of those that it touches)"""

    shared_interior = True

    def source(
        self, op: PatternBuilder, xs: Values, starts: Any, ends: Any, axes: MaybeConst, steps: MaybeConst
    ) -> Any:
        return op.Slice(op.Concat(xs, axis=op.attr("axis"), _label="concat"), starts, ends, axes, steps)

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], *bounds: Any) -> Any:
        joined = m.value("concat")
        axis = m.attr("axis") % joined.rank
        ranges = slice_ranges(joined, *bounds)
        if isinstance(ranges, Refusal):
            return ranges
        wanted = ranges.get(axis, range(joined.shape[axis]))
        if wanted.step != 1 or len(wanted) == 0:
            return Refusal("the slice is empty, or its step along the axis of the Concat is not 1")
        parts, offset = [], 0
        for x in xs:
            size = x.shape[axis]
            low, high = max(wanted.start - offset, 0), min(wanted.stop - offset, size)
            if low < high:
                parts.append(take(op, x, {**ranges, axis: range(low, high)}))
            offset += size
        if len(parts) == len(xs):
            return Refusal("the slice touches every operand of the Concat")
        return concat(op, parts, axis)


RULES = (
    DropTranspose, ComposeTransposes, DropReshape, ComposeReshapes, AsReshape, SplitOfConcat2, SplitOfConcat3,
    ConcatOfSplit2, ConcatOfSplit3, DropSlice, ComposeSlices, SliceOfConcat,
)  # fmt: skip
