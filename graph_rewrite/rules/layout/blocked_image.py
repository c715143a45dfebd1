"""Values in ONNX Runtime's blocked layout, and the operators that move them without leaving it.

A value of any rank is blocked along one axis: its memory holds [outer axes, C / block, inner axes, block]. Axes before
and after the channels split, merge, join and are cut as in a plain tensor, since Reshape costs nothing. A Transpose is
remembered until something needs the elements in order, so that two of them in a row cancel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from graph_rewrite.operators.nchwc import block_size
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape, transpose
from graph_rewrite.rules.helpers.slices import take


@dataclass(frozen=True, slots=True)
class BlockedImage:
    """A value whose element order is known: `make(op)` gives a Ref of the blocked memory, in any shape.

    `dims` are the axes as they lie in memory, `channels` which of them is blocked; axis i of the value itself is axis
    `perm[i]` of the memory.
    """

    make: Callable[[], Ref]
    dims: tuple[int, ...]
    channels: int
    perm: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the plain value."""
        return tuple(self.dims[axis] for axis in self.perm)

    @property
    def is_in_order(self) -> bool:
        return self.perm == tuple(range(len(self.perm)))

    @property
    def layout(self) -> tuple[tuple[int, ...], int, tuple[int, ...]]:
        """Return a key that is equal for values whose elements have the same order in memory."""
        return self.dims, self.channels, self.perm


def of_image(image: Ref, dims: Sequence[int], channels: int) -> BlockedImage:
    """Return a value of these axes in order, of what a blocked operator gave."""
    return BlockedImage(lambda: image, tuple(dims), channels, tuple(range(len(dims))))


def enter(op: ReplacementBuilder, x: Ref, channels: int) -> BlockedImage | None:
    """Return a plain value blocked along an axis; None where that does not fill blocks."""
    if x.rank < 3 or x.shape[channels] % block_size():
        return None
    return of_image(op.nchwc.ReorderInput(reshape(op, x, _as_image(x.shape, channels))), x.shape, channels)


def leave(op: ReplacementBuilder, x: BlockedImage) -> Ref:
    """Return the plain value."""
    plain = op.nchwc.ReorderOutput(image_of(op, x), channels=x.dims[x.channels])
    return transpose(op, reshape(op, plain, x.dims), x.perm)


def image_of(op: ReplacementBuilder, x: BlockedImage) -> Ref:
    """Return the memory as an image [outer, C, height, width]."""
    return reshape(op, x.make(), _as_image(x.dims, x.channels))


def _as_image(dims: tuple[int, ...], channels: int) -> tuple[int, ...]:
    inner = dims[channels + 1 :]
    height = math.prod(inner[:-1]) if inner else 1
    return (math.prod(dims[:channels]), dims[channels], height, inner[-1] if inner else 1)


def in_order(op: ReplacementBuilder, x: BlockedImage) -> BlockedImage:
    """Return the same value with its axes in order in memory."""
    if x.is_in_order:
        return x
    block, rank = block_size(), len(x.dims)
    blocks = [n // block if axis == x.channels else n for axis, n in enumerate(x.dims)]
    moved = op.Transpose(reshape(op, x.make(), (*blocks, block)), perm=(*x.perm, rank))
    return of_image(moved, x.shape, x.perm.index(x.channels))


def transposed(x: BlockedImage, perm: Sequence[int]) -> BlockedImage:
    """Transpose a value; the move is not carried out yet."""
    return replace(x, perm=tuple(x.perm[axis] for axis in perm))


def reshaped(op: ReplacementBuilder, x: BlockedImage, shape: Sequence[int]) -> BlockedImage | None:
    """Reshape a value; return None where the channels would not be an axis of their own any more."""
    y = in_order(op, x)
    before, count, inner = math.prod(y.dims[: y.channels]), y.dims[y.channels], math.prod(y.dims[y.channels + 1 :])
    for axis, n in enumerate(shape):
        if (math.prod(shape[:axis]), n, math.prod(shape[axis + 1 :])) == (before, count, inner):
            return BlockedImage(y.make, tuple(shape), axis, tuple(range(len(shape))))
    return None


def keeps_channels(before: Sequence[int], after: Sequence[int]) -> bool:
    """Tell whether a Reshape may keep an axis of whole blocks as any but the first and last axis."""
    block = block_size()
    return any(
        n % block == 0 and n in before and math.prod(after[:axis]) in _products(before)
        for axis, n in enumerate(after[:-1])
        if block
    )


def _products(shape: Sequence[int]) -> set[int]:
    return {math.prod(shape[:axis]) for axis in range(len(shape))}


def cut(op: ReplacementBuilder, x: BlockedImage, axis: int, kept: range) -> BlockedImage | None:
    """Return the elements of a range along an axis of the value; None where that cuts blocks."""
    dim, block = x.perm[axis], block_size()
    if dim == x.channels and (kept.step != 1 or kept.start % block or len(kept) % block or not kept):
        return None
    memory, along = _along(op, x, dim)
    return _resized(x, take(op, memory, {along: kept}), dim, len(kept))


def split(op: ReplacementBuilder, x: BlockedImage, axis: int, sizes: Sequence[int]) -> list[BlockedImage] | None:
    """Split a value along an axis; return None where that cuts blocks."""
    found, start = [], 0
    for n in sizes:
        part = cut(op, x, axis, range(start, start + n))
        if part is None:
            return None
        found.append(part)
        start += n
    return found


def join(op: ReplacementBuilder, parts: Sequence[BlockedImage], axis: int) -> BlockedImage | None:
    """Join values along an axis; return None where their elements differ in order."""
    if len({(x.channels, x.perm) for x in parts}) > 1:
        parts = [in_order(op, x) for x in parts]
    if len({(x.channels, x.perm) for x in parts}) > 1:
        return None
    dim = parts[0].perm[axis]
    alike = all(_lies_as_it_is(x, dim) for x in parts)
    views = [x.make() if alike else reshape(op, x.make(), _three_axes(x, dim)) for x in parts]
    joined = op.Concat(*views, axis=dim if alike else 1)
    return _resized(parts[0], joined, dim, sum(x.dims[dim] for x in parts))


def padded(
    op: ReplacementBuilder, x: BlockedImage, axis: int, before: int, after: int, value: Ref | None
) -> BlockedImage | None:
    """Pad a value along an axis; return None along the channels."""
    dim = x.perm[axis]
    if dim == x.channels:
        return None
    memory, along = _along(op, x, dim)
    amounts = [0] * (2 * memory.rank)
    amounts[along], amounts[memory.rank + along] = before, after
    found = op.Pad(memory, op.ints(*amounts), value)
    return _resized(x, found, dim, x.dims[dim] + before + after)


def _along(op: ReplacementBuilder, x: BlockedImage, dim: int) -> tuple[Ref, int]:
    """Return the memory in a shape that has its axis `dim` as an axis of its own, and the number of that."""
    memory = x.make()
    return (memory, dim) if _lies_as_it_is(x, dim) else (reshape(op, memory, _three_axes(x, dim)), 1)


def _lies_as_it_is(x: BlockedImage, dim: int) -> bool:
    """Tell whether the memory has the shape of the plain value, where elements up to the channels have the order of the
    plain value."""
    return dim <= x.channels and x.make().shape == x.dims


def _three_axes(x: BlockedImage, dim: int) -> tuple[int, int, int]:
    """Return the sizes before an axis, of the axis, and after it; the block comes last."""
    before, after = math.prod(x.dims[:dim]), math.prod(x.dims[dim + 1 :])
    if dim <= x.channels:
        return before, x.dims[dim], after
    return before // block_size(), x.dims[dim], after * block_size()


def _resized(x: BlockedImage, memory: Ref, dim: int, length: int) -> BlockedImage:
    dims = tuple(length if axis == dim else n for axis, n in enumerate(x.dims))
    return BlockedImage(lambda: memory, dims, x.channels, x.perm)
