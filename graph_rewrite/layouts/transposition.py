"""Transpositions of flat order: the meaning of a Reorder, without the views before and after it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from math import prod

from graph_rewrite.layouts.primitive import Shape


@dataclass(frozen=True, slots=True)
class Transposition:
    """A permutation of the flat order of elements: read as axes of `sizes`, these are reordered by `perm`. There are as
    few axes as can be, so equal permutations are equal values; none or one axis is the identity."""

    sizes: tuple[int, ...]
    perm: tuple[int, ...]

    @property
    def is_identity(self) -> bool:
        return len(self.sizes) < 2

    @property
    def moved(self) -> tuple[int, ...]:
        """Return the sizes in their new order."""
        return tuple(self.sizes[axis] for axis in self.perm)


def transposition(shape: Sequence[int], perm: Sequence[int]) -> Transposition:
    """Return the transposition of a Reorder of a shape: axes of size 1 are left out, axes that stay neighbours are
    joined."""
    groups: list[list[int]] = []
    kept = [axis for axis, size in enumerate(shape) if size > 1]
    place = {axis: i for i, axis in enumerate(kept)}
    for axis in (place[axis] for axis in perm if axis in place):
        if groups and groups[-1][-1] == axis - 1:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    order = sorted(range(len(groups)), key=lambda i: groups[i])
    sizes = tuple(prod(shape[kept[axis]] for axis in groups[i]) for i in order)
    return Transposition(sizes, tuple(order.index(i) for i in range(len(groups))))


def composed(first: Transposition, second: Transposition) -> Transposition | None:
    """Return the one transposition that does `first` and then `second`; None where no shape has the axes of both."""
    mine = cut(first.moved, boundaries(second.sizes))
    theirs = cut(second.sizes, boundaries(first.moved))
    if mine is None or theirs is None:
        return None
    # The parts of axes of `first` in its order before, each with its number after it.
    starts = [*accumulate((len(parts) for parts in mine), initial=0)]
    moved_to = {axis: place for place, axis in enumerate(first.perm)}
    before = [starts[moved_to[axis]] + i for axis in range(len(first.sizes)) for i in range(len(mine[moved_to[axis]]))]
    sizes = [size for axis in range(len(first.sizes)) for size in mine[moved_to[axis]]]
    place = {number: i for i, number in enumerate(before)}
    again = [*accumulate((len(parts) for parts in theirs), initial=0)]
    after = [again[axis] + i for axis in second.perm for i in range(len(theirs[axis]))]
    return transposition(sizes, [place[number] for number in after])


def refined(found: Transposition, source: Shape, target: Shape) -> Transposition | None:
    """Return a transposition over more axes: none is part of two dimensions of `source` before it, or of `target` after
    it. None where sizes do not divide. It is no longer the one with the fewest axes."""
    before = cut(found.sizes, boundaries(source))
    if before is None:
        return None
    parted = _parted(found, before)
    after = cut(parted.moved, boundaries(target))
    if after is None:
        return None
    return _parted(parted, [after[parted.perm.index(axis)] for axis in range(len(parted.sizes))])


def boundaries(sizes: Iterable[int]) -> set[int]:
    """Return the strides at which the axes of a shape begin: the number of elements after each cut between two."""
    return set(accumulate(reversed(tuple(sizes)), lambda a, b: a * b, initial=1))


def cut(sizes: Sequence[int], wanted: Collection[int]) -> list[tuple[int, ...]] | None:
    """Return the sizes of the parts of each axis, cut at the wanted strides; None where one lies across an axis."""
    found: list[tuple[int, ...]] = []
    low = 1
    for size in reversed(sizes):
        high = low * size
        chain = [low, *sorted(stride for stride in wanted if low < stride < high), high]
        if any(b % a for a, b in pairwise(chain)):
            return None
        found.insert(0, tuple(b // a for a, b in pairwise(chain))[::-1])
        low = high
    return found


def _parted(found: Transposition, parts: Sequence[tuple[int, ...]]) -> Transposition:
    """Return a transposition whose axes before it are replaced by their parts."""
    starts = [*accumulate((len(each) for each in parts), initial=0)]
    sizes = tuple(size for each in parts for size in each)
    return Transposition(sizes, tuple(starts[axis] + i for axis in found.perm for i in range(len(parts[axis]))))
