"""Primitives that keep every element once: split an axis, fuse axes, reorder axes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from graph_rewrite.layouts.operators import reshaped, transposed
from graph_rewrite.layouts.primitive import Array, LayoutError, Primitive, Shape, everywhere, require_axis, shape_text
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder


@dataclass(frozen=True, slots=True)
class Split(Primitive):
    """An axis becomes several axes, the slowest first. No sizes at all remove an axis of size 1."""

    axis: int
    sizes: tuple[int, ...]

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis)
        if min(self.sizes, default=1) < 1 or prod(self.sizes) != shape[self.axis]:
            raise LayoutError(f"{self} does not give the {shape[self.axis]} positions of {shape_text(shape)}")
        return (*shape[: self.axis], *self.sizes, *shape[self.axis + 1 :])

    def inverse(self, shape: Shape) -> Fuse:
        self.result(shape)
        return Fuse(self.axis, self.sizes)

    def numpy(self, array: Array) -> Array:
        return array.reshape(self.result(array.shape))

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        return reshaped(op, x, self.result(x.shape))

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        after = self.axis + len(self.sizes)
        index = np.zeros(positions.shape[1], dtype=np.int64)
        for size, digit in zip(self.sizes, positions[self.axis : after], strict=True):
            index = index * size + digit
        return np.concatenate([positions[: self.axis], index[None], positions[after:]]), everywhere(positions)

    def __str__(self) -> str:
        return f"split({self.axis}, {_sizes_text(self.sizes)})"


@dataclass(frozen=True, slots=True)
class Fuse(Primitive):
    """Adjacent axes of these sizes, the first of them `axis`, become one. No sizes at all insert an axis of size 1."""

    axis: int
    sizes: tuple[int, ...]

    def result(self, shape: Shape) -> Shape:
        require_axis(self, shape, self.axis, len(self.sizes))
        after = self.axis + len(self.sizes)
        if shape[self.axis : after] != self.sizes:
            raise LayoutError(f"{self} needs these sizes, and the shape is {shape_text(shape)}")
        return (*shape[: self.axis], prod(self.sizes), *shape[after:])

    def inverse(self, shape: Shape) -> Split:
        self.result(shape)
        return Split(self.axis, self.sizes)

    def numpy(self, array: Array) -> Array:
        return array.reshape(self.result(array.shape))

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        return reshaped(op, x, self.result(x.shape))

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        rest = positions[self.axis]
        digits: list[Array] = []
        for size in reversed(self.sizes):
            digits.insert(0, rest % size)
            rest = rest // size
        rows = [*positions[: self.axis], *digits, *positions[self.axis + 1 :]]
        return np.array(rows, dtype=np.int64).reshape(len(rows), -1), everywhere(positions)

    def __str__(self) -> str:
        return f"fuse({self.axis}, {_sizes_text(self.sizes)})"


@dataclass(frozen=True, slots=True)
class Reorder(Primitive):
    """Axes in another order: axis i of the result is axis `perm[i]` before."""

    perm: tuple[int, ...]

    def result(self, shape: Shape) -> Shape:
        if sorted(self.perm) != list(range(len(shape))):
            raise LayoutError(f"{self} does not name each axis of {shape_text(shape)} once")
        return tuple(shape[axis] for axis in self.perm)

    def inverse(self, shape: Shape) -> Reorder:
        self.result(shape)
        return Reorder(tuple(self.perm.index(axis) for axis in range(len(self.perm))))

    def numpy(self, array: Array) -> Array:
        self.result(array.shape)
        return array.transpose(self.perm)

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        self.result(x.shape)
        return transposed(op, x, self.perm)

    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        found = np.empty_like(positions)
        found[list(self.perm)] = positions
        return found, everywhere(positions)

    def __str__(self) -> str:
        return f"reorder({', '.join(map(str, self.perm))})"


def _sizes_text(sizes: tuple[int, ...]) -> str:
    return "x".join(map(str, sizes)) or "nothing"
