"""Joins and cuts: the algebra of Concat, Split, Slice, Gather and Pad."""

from __future__ import annotations

import itertools
from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, reshape, sizes_of, split
from graph_rewrite.rules.helpers.constants import ints, uniform
from graph_rewrite.rules.helpers.slices import slice_ranges, take


class _Structure(Rule):
    family = "structure"


class FlattenConcatFirst(_Structure):
    """Concat(Concat(a, b, ...), c, ...) = Concat(a, b, ..., c, ...)"""

    shared_interior = True

    def source(self, op: PatternBuilder, inner: Values, rest: Values) -> Any:
        return op.Concat(op.Concat(inner, axis=op.attr("inner")), rest, axis=op.attr("axis"))

    def check(self, m: Match, inner: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return _one_axis(m, inner[0].rank)

    def target(self, op: ReplacementBuilder, m: Match, inner: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return concat(op, (*inner, *rest), m.attr("axis"))


class FlattenConcatSecond(_Structure):
    """Concat(a, Concat(b, c, ...), d, ...) = Concat(a, b, c, ..., d, ...)"""

    shared_interior = True

    def source(self, op: PatternBuilder, a: Any, inner: Values, rest: Values) -> Any:
        return op.Concat(a, op.Concat(inner, axis=op.attr("inner")), rest, axis=op.attr("axis"))

    def check(self, m: Match, a: Ref, inner: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return _one_axis(m, a.rank)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, inner: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return concat(op, (a, *inner, *rest), m.attr("axis"))


class NestConcatFirst(_Structure):
    """Concat(a, b, c, ...) = Concat(Concat(a, b), c, ...)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, rest: Values) -> Any:
        return op.Concat(a, b, rest, axis=op.attr("axis"))

    def check(self, m: Match, a: Ref, b: Ref, rest: tuple[Ref, ...]) -> Refusal | None:
        return None if rest else Refusal("there are only two operands")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, rest: tuple[Ref, ...]) -> Any:
        return concat(op, (concat(op, (a, b), m.attr("axis")), *rest), m.attr("axis"))


class NestConcatLast(_Structure):
    """Concat(a, b, c, ...) = Concat(a, Concat(b, c, ...))"""

    def source(self, op: PatternBuilder, a: Any, rest: Values) -> Any:
        return op.Concat(a, rest, axis=op.attr("axis"))

    def check(self, m: Match, a: Ref, rest: tuple[Ref, ...]) -> Refusal | None:
        return None if len(rest) > 1 else Refusal("there are only two operands")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, rest: tuple[Ref, ...]) -> Any:
        return concat(op, (a, concat(op, rest, m.attr("axis"))), m.attr("axis"))


class _SplitOfSplit(_Structure):
    """Splits with another number of outputs are rules of their own: a pattern has a fixed number of roots."""

    position: int

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe, inner: Maybe) -> Any:
        parts = list(op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=2, _label="outer"))
        two = op.Split(parts[self.position], inner, axis=op.attr("inner", 0), _outputs=2, _label="inner")
        parts[self.position : self.position + 1] = two
        # Matching starts at the producer of the first root.
        return (*two, *(part for part in parts if part not in two))

    def check(self, m: Match, x: Ref, sizes: Ref | None, inner: Ref | None) -> Refusal | None:
        same = m.attr("axis") % x.rank == m.attr("inner") % x.rank
        return None if same else Refusal("the two Splits work on different axes")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None, inner: Ref | None) -> Any:
        axis = m.attr("axis") % x.rank
        all_sizes = list(sizes_of(m, "outer", 2, axis))
        all_sizes[self.position : self.position + 1] = sizes_of(m, "inner", 2, axis)
        a, b, c = split(op, x, all_sizes, axis)
        return (a, b, c) if self.position == 0 else (b, c, a)


class SplitOfSplitFirst(_SplitOfSplit):
    """a, b = Split(y) and c where y, c = Split(x): a, b, c = Split(x)"""

    position = 0


class SplitOfSplitLast(_SplitOfSplit):
    """b, c = Split(y) and a where a, y = Split(x): a, b, c = Split(x)"""

    position = 1


class _SlicesAsSplit(_Structure):
    symmetric = True

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *bounds: Any) -> Any:
        taken: list[tuple[int, range]] = []
        for i in range(0, len(bounds), 4):
            part = _one_range(x, *bounds[i : i + 4])
            if isinstance(part, Refusal):
                return part
            taken.append(part)
        axis, order = taken[0][0], sorted(range(len(taken)), key=lambda k: taken[k][1].start)
        if any(other != axis for other, _ in taken):
            return Refusal("the slices are along different axes")
        end = 0
        for k in order:
            if taken[k][1].start != end:
                return Refusal("the slices overlap or leave a gap")
            end = taken[k][1].stop
        if end != x.shape[axis]:
            return Refusal("the slices leave something out at the end")
        parts = split(op, x, [len(taken[k][1]) for k in order], axis)
        return tuple(parts[order.index(k)] for k in range(len(taken)))


class SlicesAsSplit2(_SlicesAsSplit):
    """Slice(x, 0 to i), Slice(x, i to end) = Split(x)"""

    def source(
        self, op: PatternBuilder, x: Any, s0: Any, e0: Any, a0: Maybe, k0: Maybe, s1: Any, e1: Any, a1: Maybe, k1: Maybe
    ) -> Any:
        return op.Slice(x, s0, e0, a0, k0), op.Slice(x, s1, e1, a1, k1)


class SlicesAsSplit3(_SlicesAsSplit):
    """Slice(x, 0 to i), Slice(x, i to j), Slice(x, j to end) = Split(x)"""

    def source(
        self, op: PatternBuilder, x: Any, s0: Any, e0: Any, a0: Maybe, k0: Maybe, s1: Any, e1: Any, a1: Maybe,
        k1: Maybe, s2: Any, e2: Any, a2: Maybe, k2: Maybe,
    ) -> Any:  # fmt: skip
        return op.Slice(x, s0, e0, a0, k0), op.Slice(x, s1, e1, a1, k1), op.Slice(x, s2, e2, a2, k2)


class _SplitAsSlices(_Structure):
    outputs: int

    def source(self, op: PatternBuilder, x: Any, sizes: Maybe) -> Any:
        return op.Split(x, sizes, axis=op.attr("axis", 0), _outputs=self.outputs, _label="split")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, sizes: Ref | None) -> Any:
        axis, parts, offset = m.attr("axis") % x.rank, [], 0
        for size in sizes_of(m, "split", self.outputs, axis):
            parts.append(take(op, x, {axis: range(offset, offset + size)}))
            offset += size
        return tuple(parts)


class SplitAsSlices2(_SplitAsSlices):
    """Split(x) = Slice(x, 0 to i), Slice(x, i to end)"""

    outputs = 2


class SplitAsSlices3(_SplitAsSlices):
    """Split(x) = Slice(x, 0 to i), Slice(x, i to j), Slice(x, j to end)"""

    outputs = 3


class GatherAsSlice(_Structure):
    """Gather(x, i) = Reshape(Slice(x)) for constant indices at equal distances"""

    def source(self, op: PatternBuilder, x: Any, indices: Any) -> Any:
        return op.Gather(x, indices, axis=op.attr("axis", 0))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, indices: Ref) -> Any:
        wanted, axis = ints(indices), m.attr("axis") % x.rank
        dim = x.shape[axis]
        if not wanted or not dim:
            return Refusal("the indices are not constants, or are none")
        positions = [position % dim for position in wanted]
        step = positions[1] - positions[0] if len(positions) > 1 else 1
        if step == 0 or any(b - a != step for a, b in itertools.pairwise(positions)):
            return Refusal("the indices are not at equal distances")
        return reshape(op, take(op, x, {axis: range(positions[0], positions[-1] + step, step)}), m.root().shape)


class ConcatOfSlices(_Structure):
    """Concat(Slice(x, i to j), Slice(x, j to k), y, ...) = Concat(Slice(x, i to k), y, ...)"""

    shared_interior = True

    def source(
        self, op: PatternBuilder, x: Any, s0: Any, e0: Any, a0: Maybe, k0: Maybe, s1: Any, e1: Any, a1: Maybe,
        k1: Maybe, rest: Values,
    ) -> Any:  # fmt: skip
        return op.Concat(op.Slice(x, s0, e0, a0, k0), op.Slice(x, s1, e1, a1, k1), rest, axis=op.attr("axis"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *variables: Any) -> Any:
        *bounds, rest = variables
        axis = m.attr("axis") % x.rank
        first, second = slice_ranges(x, *bounds[:4]), slice_ranges(x, *bounds[4:])
        if isinstance(first, Refusal):
            return first
        if isinstance(second, Refusal):
            return second
        low, high = (ranges.pop(axis, range(x.shape[axis])) for ranges in (first, second))
        full = {k: range(dim) for k, dim in enumerate(x.shape)}
        if {**full, **first} != {**full, **second}:
            return Refusal("the slices differ along another axis")
        if low.step != 1 or high.step != 1 or not low or not high or low.stop != high.start:
            return Refusal("the second slice does not go on where the first one ends")
        return concat(op, (take(op, x, {**first, axis: range(low.start, high.stop)}), *rest), axis)


class ComposePads(_Structure):
    """Pad(Pad(x, p, v), q, v) = Pad(x, p + q, v)"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any, p: Any, v: Maybe, a: Maybe, q: Any, w: Maybe, b: Maybe) -> Any:
        inner = op.Pad(x, p, v, a, mode="constant")
        return op.Pad(inner, q, w, b, mode="constant")

    def target(
        self,
        op: ReplacementBuilder,
        m: Match,
        x: Ref,
        p: Ref,
        v: Ref | None,
        a: Ref | None,
        q: Ref,
        w: Ref | None,
        b: Ref | None,
    ) -> Any:
        first, second = _pads(x.rank, p, a), _pads(x.rank, q, b)
        if first is None or second is None:
            return Refusal("the pads are not constants")
        if min((*first, *second), default=0) < 0:
            return Refusal("a pad is negative")
        values = [0.0 if ref is None else uniform(ref) for ref in (v, w)]
        if values[0] is None or values[0] != values[1]:
            return Refusal("the values of the pads differ, or are not constants")
        return op.Pad(x, op.ints(*(i + j for i, j in zip(first, second, strict=True))), v if v is not None else w)


def _one_axis(m: Match, rank: int) -> Refusal | None:
    same = m.attr("axis") % rank == m.attr("inner") % rank
    return None if same else Refusal("the two Concats work on different axes")


def _one_range(x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None) -> tuple[int, range] | Refusal:
    """Return axis and range of a slice that cuts along one axis without a step."""
    ranges = slice_ranges(x, starts, ends, axes, steps)
    if isinstance(ranges, Refusal):
        return ranges
    cut = [(axis, taken) for axis, taken in ranges.items() if taken != range(x.shape[axis])]
    if len(cut) != 1 or cut[0][1].step != 1 or len(cut[0][1]) == 0:
        return Refusal("a slice is empty, has a step, or does not cut along one axis")
    return cut[0]


def _pads(rank: int, pads: Ref, axes: Ref | None) -> tuple[int, ...] | None:
    """Return the pads of all axes, those at the beginning first."""
    given, which = ints(pads), tuple(range(rank)) if axes is None else ints(axes)
    if given is None or which is None:
        return None
    full = [0] * (2 * rank)
    for k, axis in enumerate(which):
        full[axis % rank], full[rank + axis % rank] = given[k], given[len(which) + k]
    return tuple(full)


RULES = (
    FlattenConcatFirst, FlattenConcatSecond, NestConcatFirst, NestConcatLast, SplitOfSplitFirst, SplitOfSplitLast,
    SlicesAsSplit2, SlicesAsSplit3, SplitAsSlices2, SplitAsSlices3, GatherAsSlice, ConcatOfSlices, ComposePads,
)  # fmt: skip
