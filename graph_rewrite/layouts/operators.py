"""ONNX operators that move elements, each left out where nothing moves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

_FEW_TILES = 8
"""Overlapping tiles up to this many are slices that are joined: those copy whole rows, and Gather single elements."""


def reshaped(op: ReplacementBuilder, x: Ref, shape: Sequence[int]) -> Ref:
    """Return x in another shape of the same size."""
    if tuple(shape) == x.shape:
        return x
    result: Ref = op.Reshape(x, op.ints(*shape))
    return result


def transposed(op: ReplacementBuilder, x: Ref, perm: Sequence[int]) -> Ref:
    """Return x with its axes in another order."""
    if tuple(perm) == tuple(range(x.rank)):
        return x
    result: Ref = op.Transpose(x, perm=tuple(perm))
    return result


def padded(op: ReplacementBuilder, x: Ref, zeros: Mapping[int, tuple[int, int]]) -> Ref:
    """Return x with zeros before and after, by axis."""
    before = [zeros.get(axis, (0, 0))[0] for axis in range(x.rank)]
    after = [zeros.get(axis, (0, 0))[1] for axis in range(x.rank)]
    if not any((*before, *after)):
        return x
    result: Ref = op.Pad(x, op.ints(*before, *after))
    return result


def sliced(op: ReplacementBuilder, x: Ref, ranges: Mapping[int, tuple[int, int]]) -> Ref:
    """Return the positions of x from a first up to a last, which is left out, by axis."""
    used = {axis: bounds for axis, bounds in sorted(ranges.items()) if bounds != (0, x.shape[axis])}
    if not used:
        return x
    starts, ends = zip(*used.values(), strict=True)
    result: Ref = op.Slice(x, op.ints(*starts), op.ints(*ends), op.ints(*used))
    return result


def joined(op: ReplacementBuilder, parts: Sequence[Ref], axis: int) -> Ref:
    """Return the parts one after the other along an axis."""
    if len(parts) == 1:
        return parts[0]
    result: Ref = op.Concat(*parts, axis=axis)
    return result


def unfolded(op: ReplacementBuilder, x: Ref, axis: int, tile: int, stride: int) -> Ref:
    """Return tiles of an axis, which becomes the two axes of the tiles and of the positions in each. They must cover
    the axis."""
    tiles = (x.shape[axis] - tile) // stride + 1
    shape = (*x.shape[:axis], tiles, tile, *x.shape[axis + 1 :])
    if tile == stride or tiles == 1:
        return reshaped(op, x, shape)
    if tiles <= _FEW_TILES:
        parts = [sliced(op, x, {axis: (k * stride, k * stride + tile)}) for k in range(tiles)]
        return reshaped(op, joined(op, parts, axis), shape)
    indices = stride * np.arange(tiles, dtype=np.int64)[:, None] + np.arange(tile, dtype=np.int64)
    result: Ref = op.Gather(x, op.constant(indices), axis=axis)
    return result


def folded(op: ReplacementBuilder, x: Ref, axis: int, stride: int) -> Ref:
    """Return what `unfolded` was applied to: the first positions of each tile, and all of the last one."""
    tiles, tile = x.shape[axis : axis + 2]
    head, tail = x.shape[:axis], x.shape[axis + 2 :]
    if tile == stride or tiles == 1:
        return reshaped(op, x, (*head, tiles * tile, *tail))
    first = sliced(op, x, {axis: (0, tiles - 1), axis + 1: (0, stride)})
    last = sliced(op, x, {axis: (tiles - 1, tiles)})
    parts = [reshaped(op, first, (*head, (tiles - 1) * stride, *tail)), reshaped(op, last, (*head, tile, *tail))]
    return joined(op, parts, axis)
