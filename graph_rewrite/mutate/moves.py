"""Moves: changes of a tensor's layout that have no shape, and the primitives that they are at a given shape.

A move takes a factor off one axis and puts it beside another; zeros fill an axis that the factor does not divide. It is
PET's Reshape and Transpose as one (OSDI'21, section 4.2), with pad and unfold. The same move applies to a small
instance of a program, where mutants are found, and to the real one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from graph_rewrite.layouts import Crop, Fuse, Layout, Pad, Primitive, Reorder, Shape, Split, Unfold

Place = Literal["outer", "inner"]


class DoesNotFit(ValueError):
    """A move or an operator does not apply at a shape."""


@dataclass(frozen=True, slots=True, order=True)
class Move:
    """Take `factor` off axis `source`, as its outer or inner part, and make it the outer or inner part of `target`.

    With `front`, the zeros that fill an axis up to a multiple of the factor come first.
    """

    source: int
    part: Place
    target: int
    place: Place
    factor: int
    front: bool = False

    def steps(self, shape: Shape) -> list[Primitive]:
        """Return the primitives at a shape.

        Raises:
            DoesNotFit: an axis is out of range, or shorter than the factor.
        """
        source, target, factor = self.source, self.target, self.factor
        if not (0 <= source < len(shape) and 0 <= target < len(shape)) or not 1 < factor <= shape[source]:
            raise DoesNotFit(f"{self} at {shape}")
        found: list[Primitive] = []
        missing = -shape[source] % factor
        if missing:
            found.append(Pad(source, missing, 0) if self.front else Pad(source, 0, missing))
        rest = (shape[source] + missing) // factor
        outer = self.part == "outer"
        found.append(Split(source, (factor, rest) if outer else (rest, factor)))
        moved, kept = (source, source + 1) if outer else (source + 1, source)
        sizes = found[-1].result((*shape[:source], factor * rest, *shape[source + 1 :]))
        return found + _beside(sizes, moved, kept, source, target, self.place)

    def undone(self) -> Move:
        """Return the move that undoes this one, but for zeros put in."""
        return Move(self.target, self.place, self.source, self.part, self.factor)


@dataclass(frozen=True, slots=True, order=True)
class Tiles:
    """Cut axis `source` into `count` tiles that overlap by `overlap` elements, and make their number the outer part of
    axis `target`. There are `before` zeros before the axis, and zeros after it where the tiles need them."""

    source: int
    count: int
    overlap: int
    target: int
    before: int = 0

    def steps(self, shape: Shape) -> list[Primitive]:
        """Return the primitives at a shape.

        Raises:
            DoesNotFit: an axis is out of range, or too short.
        """
        source, target = self.source, self.target
        if source == target or not (0 <= source < len(shape) and 0 <= target < len(shape)) or self.count < 2:
            raise DoesNotFit(f"{self} at {shape}")
        stride = -(-(shape[source] + 2 * self.before - self.overlap) // self.count)
        if stride < 1:
            raise DoesNotFit(f"{self} at {shape}")
        missing = stride * self.count + self.overlap - shape[source] - self.before
        found: list[Primitive] = [Pad(source, self.before, missing)] if missing or self.before else []
        found.append(Unfold(source, stride + self.overlap, stride))
        sizes = (*shape[:source], self.count, stride + self.overlap, *shape[source + 1 :])
        return found + _beside(sizes, source, source + 1, source, target, "outer")

    def undone(self) -> Move:
        """Return the move that puts tiles without an overlap side by side again."""
        return Move(self.target, "outer", self.source, "outer", self.count)


@dataclass(frozen=True, slots=True, order=True)
class Window:
    """The part of a tensor from `start` on, of a `size` per axis; zeros where it reaches beyond the tensor."""

    start: tuple[int, ...]
    size: tuple[int, ...]

    def steps(self, shape: Shape) -> list[Primitive]:
        """Return the primitives at a shape.

        Raises:
            DoesNotFit: another rank, or no element of the tensor is in the window.
        """
        if len(self.size) != len(shape):
            raise DoesNotFit(f"{self} at {shape}")
        found: list[Primitive] = []
        for axis, (start, size, old) in enumerate(zip(self.start, self.size, shape, strict=True)):
            if start >= old or start + size <= 0:
                raise DoesNotFit(f"{self} at {shape}")
            before, after = -start, start + size - old
            if min(before, after) < 0:
                found.append(Crop(axis, max(-before, 0), max(-after, 0)))
            if max(before, after) > 0:
                found.append(Pad(axis, max(before, 0), max(after, 0)))
        return found


LayoutMove = Move | Tiles | Window | Primitive
"""Primitives whose parameters are no sizes may stand among moves: Reorder, Pad, Crop."""
Chain = tuple[LayoutMove, ...]


def _beside(sizes: Shape, moved: int, kept: int, source: int, target: int, place: Place) -> list[Primitive]:
    """Return the primitives that bring axis `moved` beside the target and fuse them. `sizes` and the axes `moved` and
    `kept` count after the split, `source` and `target` before."""
    aim = kept if target == source else (target if target < source else target + 1)
    order = [axis for axis in range(len(sizes)) if axis != moved]
    at = order.index(aim) + (place == "inner")
    order.insert(at, moved)
    first = at - (place == "inner")
    found: list[Primitive] = [] if order == list(range(len(sizes))) else [Reorder(tuple(order))]
    return [*found, Fuse(first, (sizes[order[first]], sizes[order[first + 1]]))]


@lru_cache(maxsize=16384)
def layout_of(chain: Chain, shape: Shape) -> Layout:
    """Return the layout that a chain of moves is at a shape.

    Raises:
        DoesNotFit: a move does not apply.
    """
    layout = Layout(shape)
    for move in chain:
        for primitive in [move] if isinstance(move, Primitive) else move.steps(layout.shape):
            layout = layout.then(primitive)
    return layout
