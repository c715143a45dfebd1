"""The normal form of views: sequences of Split, Fuse and Reorder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from graph_rewrite.layouts.primitive import Primitive, Shape
from graph_rewrite.layouts.transposition import Transposition, composed, refined, transposition
from graph_rewrite.layouts.views import Fuse, Reorder, Split


@dataclass(frozen=True, slots=True)
class ViewRun:
    """All that a sequence of views does: the shape before it, the transpositions, no two of which could be one, and the
    shape after it."""

    source: Shape
    moves: tuple[Transposition, ...]
    target: Shape

    @classmethod
    def of(cls, source: Shape, primitives: Sequence[Primitive]) -> ViewRun:
        """Return what views do to a shape."""
        moves: list[Transposition] = []
        shape = source
        for primitive in primitives:
            if isinstance(primitive, Reorder):
                _push(moves, transposition(shape, primitive.perm))
            shape = primitive.result(shape)
        return cls(source, tuple(moves), shape)

    def primitives(self) -> list[Primitive]:
        """Return the views of the normal form: where sizes divide, Splits before one Reorder, and Fuses after it."""
        if len(self.moves) == 1:
            fitting = refined(self.moves[0], self.source, self.target)
            if fitting is not None:
                return self._single(fitting)
        found: list[Primitive] = []
        shape = self.source
        for move in self.moves:
            found += [*reshaping(shape, move.sizes), Reorder(move.perm)]
            shape = move.moved
        return found + reshaping(shape, self.target)

    def traced(self, axis: int) -> int | None:
        """Return the axis before the views that is `axis` after them, as a whole and alone; None where there is none.
        Axes of size 1 are not traced."""
        if self.target[axis] == 1 or len(self.moves) > 1:
            return None
        if not self.moves:
            stride = prod(self.target[axis + 1 :])
            strides = [prod(self.source[i + 1 :]) for i in range(len(self.source))]
            alike = [i for i, size in enumerate(self.source) if (size, strides[i]) == (self.target[axis], stride)]
            return alike[0] if alike else None
        fitting = refined(self.moves[0], self.source, self.target)
        if fitting is None:
            return None
        after = _axes_of(fitting.moved, self.target)[axis]
        wanted = [fitting.perm[i] for i in after]
        parts = _axes_of(fitting.sizes, self.source)
        return parts.index(wanted) if wanted in parts else None

    def resized(self, before: int, after: int, size: int) -> ViewRun:
        """Return the same views over tensors whose axis `before` has another size; `after` is the axis that it is
        traced from."""
        source = (*self.source[:before], size, *self.source[before + 1 :])
        target = (*self.target[:after], size, *self.target[after + 1 :])
        if not self.moves:
            return ViewRun(source, (), target)
        fitting = refined(self.moves[0], self.source, self.target)
        assert fitting is not None
        parts = _axes_of(fitting.sizes, self.source)[before]
        # The parts of the axis stay together, so one part stands for all of them.
        sizes = [size if i == parts[0] else 1 if i in parts else kept for i, kept in enumerate(fitting.sizes)]
        move = transposition(sizes, fitting.perm)
        return ViewRun(source, () if move.is_identity else (move,), target)

    def _single(self, move: Transposition) -> list[Primitive]:
        """Return the views around one Reorder. The first axes of size 1 before it become the first after it; others
        come and go by views."""
        count = min(self.source.count(1), self.target.count(1))
        lead = _with_ones(_axes_of(move.sizes, self.source), self.source, count)
        places = {axis: place for place, axis in enumerate(move.perm)}
        trail = _with_ones(_axes_of(move.moved, self.target), self.target, count)
        axes = [key if key < 0 else places[key] for key in lead]
        shape = tuple(1 if key < 0 else move.sizes[key] for key in lead)
        reorder = Reorder(tuple(axes.index(key) for key in trail))
        return [*reshaping(self.source, shape), reorder, *reshaping(reorder.result(shape), self.target)]


def reshaping(source: Shape, target: Shape) -> list[Primitive]:
    """Return the Splits and Fuses from a shape to another of the same size, one block of axes after the other."""
    found: list[Primitive] = []
    for place, (before, after) in _placed(_blocks(source, target)):
        if before == after:
            continue
        if len(before) != 1:
            found.append(Fuse(place, before))
        if len(after) != 1:
            found.append(Split(place, after))
    return found


def _placed(blocks: Sequence[tuple[Shape, Shape]]) -> list[tuple[int, tuple[Shape, Shape]]]:
    place, found = 0, []
    for block in blocks:
        found.append((place, block))
        place += len(block[1])
    return found


def _blocks(source: Shape, target: Shape) -> list[tuple[Shape, Shape]]:
    """Return the shortest runs of axes with equal numbers of elements on both sides; ones left over join the last."""
    found: list[tuple[Shape, Shape]] = []
    i = j = 0
    while i < len(source) and j < len(target):
        k, m = i + 1, j + 1
        before, after = source[i], target[j]
        while before != after:
            if before < after:
                before, k = before * source[k], k + 1
            else:
                after, m = after * target[m], m + 1
        found.append((source[i:k], target[j:m]))
        i, j = k, m
    if i < len(source) or j < len(target):
        last = found.pop() if found else ((), ())
        found.append(((*last[0], *source[i:]), (*last[1], *target[j:])))
    return found


def _axes_of(parts: Sequence[int], shape: Shape) -> list[list[int]]:
    """Return the numbers of the parts that each axis of a shape consists of: none for an axis of size 1."""
    found: list[list[int]] = []
    number = 0
    for size in shape:
        members: list[int] = []
        while prod(parts[i] for i in members) < size:
            members.append(number)
            number += 1
        found.append(members)
    return found


def _with_ones(axes: Sequence[Sequence[int]], shape: Shape, count: int) -> list[int]:
    """Return the numbers of all parts, and -1, -2, ... in the places of the first `count` axes of size 1."""
    found: list[int] = []
    ones = 0
    for members, size in zip(axes, shape, strict=True):
        if size == 1 and ones < count:
            ones += 1
            found.append(-ones)
        found.extend(members)
    return found


def _push(moves: list[Transposition], move: Transposition) -> None:
    """Add a transposition, composed with those before it as far as that can be."""
    while not move.is_identity:
        both = composed(moves[-1], move) if moves else None
        if both is None:
            moves.append(move)
            return
        moves.pop()
        move = both
