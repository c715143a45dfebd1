"""Primitives that change how many positions there are: pad and crop an axis, unfold it into tiles and fold it again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from graph_rewrite.layouts.operators import folded, padded, sliced, unfolded
from graph_rewrite.layouts.primitive import Array, LayoutError, Primitive, Shape, everywhere, require_axis, shape_text
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder


@dataclass(frozen=True, slots=True)
class Pad(Primitive):
    """Zeros before and after the positions of an axis."""

    axis: int
    before: int
    after: int

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis)
        if min(self.before, self.after) < 0:
            raise LayoutError(f"{self} takes positions away: that is a Crop")
        size = self.before + shape[self.axis] + self.after
        return (*shape[: self.axis], size, *shape[self.axis + 1 :])

    def inverse(self, shape: Shape) -> Crop:
        self.result(shape)
        return Crop(self.axis, self.before, self.after)

    def numpy(self, array: Array) -> Array:
        result = np.zeros(self.result(array.shape), dtype=array.dtype)
        result[_along(self.axis, self.before, self.before + array.shape[self.axis])] = array
        return result

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        self.result(x.shape)
        return padded(op, x, {self.axis: (self.before, self.after)})

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        found = positions.copy()
        found[self.axis] -= self.before
        return found, (found[self.axis] >= 0) & (found[self.axis] < shape[self.axis])

    def __str__(self) -> str:
        return f"pad({self.axis}, {self.before}+{self.after})"


@dataclass(frozen=True, slots=True)
class Crop(Primitive):
    """An axis without its first `before` and its last `after` positions."""

    axis: int
    before: int
    after: int

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis)
        if min(self.before, self.after) < 0:
            raise LayoutError(f"{self} adds positions: that is a Pad")
        size = shape[self.axis] - self.before - self.after
        if size < 1:
            raise LayoutError(f"{self} leaves nothing of {shape_text(shape)}")
        return (*shape[: self.axis], size, *shape[self.axis + 1 :])

    def inverse(self, shape: Shape) -> Crop | None:
        return self if self.result(shape) == shape else None

    def numpy(self, array: Array) -> Array:
        size = self.result(array.shape)[self.axis]
        return array[_along(self.axis, self.before, self.before + size)]

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        size = self.result(x.shape)[self.axis]
        return sliced(op, x, {self.axis: (self.before, self.before + size)})

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        found = positions.copy()
        found[self.axis] += self.before
        return found, everywhere(positions)

    def __str__(self) -> str:
        return f"crop({self.axis}, {self.before}+{self.after})"


@dataclass(frozen=True, slots=True)
class Unfold(Primitive):
    """An axis as tiles of `tile` positions, one every `stride` positions: two axes, the number of the tile and the
    position inside it. Tiles overlap by `tile - stride` positions (ALT, section 4.1.2). They cover the axis exactly:
    pad it first where they would not."""

    axis: int
    tile: int
    stride: int

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis)
        if not 1 <= self.stride <= self.tile:
            raise LayoutError(f"{self} needs a stride from 1 to the size of a tile")
        rest = shape[self.axis] - self.tile
        if rest < 0 or rest % self.stride:
            raise LayoutError(f"tiles of {self} do not cover axis {self.axis} of {shape_text(shape)} exactly")
        return (*shape[: self.axis], rest // self.stride + 1, self.tile, *shape[self.axis + 1 :])

    def inverse(self, shape: Shape) -> Fold:
        self.result(shape)
        return Fold(self.axis, self.stride)

    def numpy(self, array: Array) -> Array:
        tiles = self.result(array.shape)[self.axis]
        indices = self.stride * np.arange(tiles)[:, None] + np.arange(self.tile)
        return np.take(array, indices, axis=self.axis)

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        self.result(x.shape)
        return unfolded(op, x, self.axis, self.tile, self.stride)

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        index = positions[self.axis] * self.stride + positions[self.axis + 1]
        return np.concatenate(
            [positions[: self.axis], index[None], positions[self.axis + 2 :]]
        ), everywhere(positions)  # fmt: skip

    def __str__(self) -> str:
        return f"unfold({self.axis}, {self.tile} every {self.stride})"


@dataclass(frozen=True, slots=True)
class Fold(Primitive):
    """Tiles, one every `stride` positions, as one axis. Where tiles overlap the later one counts."""

    axis: int
    stride: int

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis, 2)
        tiles, tile = shape[self.axis : self.axis + 2]
        if not 1 <= self.stride <= tile:
            raise LayoutError(f"{self} needs a stride from 1 to the {tile} positions of a tile")
        return (*shape[: self.axis], (tiles - 1) * self.stride + tile, *shape[self.axis + 2 :])

    def inverse(self, shape: Shape) -> Unfold | None:
        self.result(shape)
        tiles, tile = shape[self.axis : self.axis + 2]
        return Unfold(self.axis, tile, self.stride) if tile == self.stride or tiles == 1 else None

    def numpy(self, array: Array) -> Array:
        shape = self.result(array.shape)
        tiles, tile = array.shape[self.axis : self.axis + 2]
        result = np.empty(shape, dtype=array.dtype)
        for k in range(tiles):
            place = _along(self.axis, k * self.stride, k * self.stride + tile)
            result[place] = np.take(array, k, axis=self.axis)
        return result

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        self.result(x.shape)
        return folded(op, x, self.axis, self.stride)

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        index = positions[self.axis]
        tile = np.minimum(index // self.stride, shape[self.axis] - 1)
        digits = np.stack([tile, index - tile * self.stride])
        return np.concatenate([positions[: self.axis], digits, positions[self.axis + 1 :]]), everywhere(positions)

    def __str__(self) -> str:
        return f"fold({self.axis}, every {self.stride})"


def _along(axis: int, start: int, stop: int) -> tuple[slice, ...]:
    """Return the index that takes a range of an axis."""
    return (*(slice(None),) * axis, slice(start, stop))
