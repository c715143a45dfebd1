"""The thin instance of a subprogram: the same batches, images, kernels and rows, but few channels and columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import product
from math import gcd, lcm

from graph_rewrite.layouts import Crop, Fold, Fuse, LayoutError, Pad, Reorder, Shape, Split, Unfold
from graph_rewrite.mutate.generation.instance import work_of
from graph_rewrite.mutate.moves import DoesNotFit, layout_of
from graph_rewrite.mutate.program import Step, Subprogram
from graph_rewrite.mutate.thinning.carrying import carried
from graph_rewrite.mutate.value_types import types_of

LEAST_WORK = 1 << 20
"""Multiplications of a subprogram that needs no thin instance."""
LEAST_RATIO = 4
"""A thin instance takes so many times fewer multiplications, or is of no use."""
_PARTS = 8
"""Numbers of channels that are divided by 2, 4 or 8 stay so. Layouts of mutants divide by 2 and 4; with 4 channels, one
that divides by 2 would undo itself."""

Axis = tuple[int, int]
"""A value of the program, and an axis of it."""


def thin_instance(sub: Subprogram) -> Subprogram:
    """Return a subprogram with fewer channels and columns, along which all positions are computed alike. It is the
    subprogram itself where that saves little."""
    work = work_of(sub.program, sub.shapes)
    if work < LEAST_WORK:
        return sub
    shapes = _Channels(sub).thin_shapes()
    try:
        thin = replace(sub, program=carried(sub.program, sub.shapes, shapes), shapes=shapes)
        return thin if LEAST_RATIO * work_of(thin.program, shapes) <= work else sub
    except (DoesNotFit, LayoutError):
        return sub


@dataclass(slots=True)
class _Group:
    """Axes of values whose sizes stay in proportion."""

    sizes: set[int]
    units: int = _PARTS
    fixed: bool = False

    @property
    def ratio(self) -> int:
        """Return the number by which all sizes are divided."""
        common = 1 if self.fixed else gcd(*self.sizes)
        ratios = (ratio for ratio in range(common, 1, -1) if common % ratio == 0)
        return next((ratio for ratio in ratios if all(self._is_enough(size, ratio) for size in self.sizes)), 1)

    def _is_enough(self, size: int, ratio: int) -> bool:
        """Tell whether a divided size still has several parts, as many of them as layouts may ask for."""
        rest = size // ratio
        return rest > 1 and rest % gcd(size, self.units) == 0


class _Channels:
    """Finds the axes of a program along which it may be thinner: those of channels and of the columns of matrices. The
    others are fixed. Channels of operators of one kind stay in proportion, since mutants may put them side by side."""

    def __init__(self, sub: Subprogram) -> None:
        self._sub = sub
        self._shapes = [type.shape for type in types_of(sub.program, sub.shapes)]
        self._parent: dict[Axis, Axis] = {}
        self._groups = {(v, i): _Group({size}) for v, shape in enumerate(self._shapes) for i, size in enumerate(shape)}
        self._roles: dict[tuple[str, int], Axis] = {}
        for number, each in enumerate(sub.program.steps):
            self._add(each, sub.program.count + number)

    def thin_shapes(self) -> tuple[Shape, ...]:
        """Return the shapes of the inputs."""
        return tuple(
            tuple(size // self._groups[self._root((value, axis))].ratio for axis, size in enumerate(shape))
            for value, shape in enumerate(self._sub.shapes)
        )

    def _root(self, axis: Axis) -> Axis:
        while axis in self._parent:
            axis = self._parent[axis]
        return axis

    def _join(self, a: Axis, b: Axis) -> None:
        first, second = self._root(a), self._root(b)
        if first != second:
            one, other = self._groups[first], self._groups.pop(second)
            self._groups[first] = _Group(one.sizes | other.sizes, lcm(one.units, other.units), one.fixed or other.fixed)
            self._parent[second] = first

    def _fix(self, value: int, axes: Iterable[int]) -> None:
        for axis in axes:
            self._groups[self._root((value, axis))].fixed = True

    def _alike(self, op: str, operand: int, axis: Axis) -> None:
        """Keep the channels that all operators of a kind have of an operand in proportion."""
        self._join(self._roles.setdefault((op, operand), axis), axis)

    def _add(self, each: Step, made: int) -> None:
        """Join and fix the axes of a step's operands and of the value that it gives."""
        rank = len(self._shapes[made])
        match each.op:
            case "conv":
                self._conv(each, made)
            case "matmul":
                self._matmul(each, made)
            case "pool":
                self._join((made, 1), (each.inputs[0], 1))
                for value in (made, each.inputs[0]):
                    self._fix(value, (0, *range(2, rank)))
            case "add" | "mul":
                for value in each.inputs:
                    self._beside(value, made)
            case "concat" | "fit":
                for value, axis in product(each.inputs, range(rank)):
                    self._join((made, axis), (value, axis))
            case "layout":
                self._layout(each, made)
            case _:
                for value in (made, *each.inputs):
                    self._fix(value, range(len(self._shapes[value])))

    def _conv(self, each: Step, made: int) -> None:
        x, w, *bias = each.inputs
        rank = len(self._shapes[made])
        groups = self._shapes[x][1] // self._shapes[w][1]
        self._fix(w, range(2, rank))
        for value in (x, made):
            self._fix(value, (0, *range(2, rank)))
        self._join((x, 1), (w, 1))
        self._join((made, 1), (w, 0))
        for value in bias:
            self._join((w, 0), (value, 0))
        self._alike("conv", 0, (w, 1))
        self._alike("conv", 1, (w, 0))
        group = self._groups[self._root((w, 0))]
        group.units = lcm(group.units, groups, *each.param("strides"), *each.param("dilations"))

    def _matmul(self, each: Step, made: int) -> None:
        """Fix batches and rows, as those of images; columns and what is summed over may become fewer."""
        a, b = each.inputs
        rows = len(self._shapes[a]) - 1
        columns = len(self._shapes[b]) - 1
        self._fix(made, range(len(self._shapes[made]) - 1))
        self._fix(a, range(rows))
        self._fix(b, range(columns - 1))
        self._join((a, rows), (b, columns - 1))
        self._join((made, len(self._shapes[made]) - 1), (b, columns))
        self._alike("matmul", 0, (a, rows))
        self._alike("matmul", 1, (b, columns))

    def _beside(self, value: int, made: int) -> None:
        """Join the axes of an operand with those of a result that are as long."""
        own, whole = self._shapes[value], self._shapes[made]
        for axis, size in enumerate(own):
            if whole[axis + len(whole) - len(own)] == size:
                self._join((made, axis + len(whole) - len(own)), (value, axis))

    def _layout(self, each: Step, made: int) -> None:
        """Join the axes that a layout leaves whole; fix the others."""
        [value] = each.inputs
        places: list[int | None] = list(range(len(self._shapes[value])))
        shape = self._shapes[value]
        for primitive in layout_of(each.chain, shape).primitives:
            match primitive:
                case Reorder(perm):
                    places = [places[axis] for axis in perm]
                case Split(axis, sizes):
                    places[axis : axis + 1] = [None] * len(sizes)
                case Fuse(axis, sizes):
                    places[axis : axis + len(sizes)] = [None]
                case Unfold(axis):
                    places[axis : axis + 1] = [None, None]
                case Fold(axis):
                    places[axis : axis + 2] = [None]
                case Pad(axis) | Crop(axis):
                    places[axis] = None
        self._fix(value, set(range(len(shape))).difference(place for place in places if place is not None))
        for axis, place in enumerate(places):
            if place is None:
                self._fix(made, (axis,))
            else:
                self._join((made, axis), (value, place))
