"""Layouts: sequences of primitives over a shape."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import numpy as np

from graph_rewrite.layouts.normal_form import normal_form
from graph_rewrite.layouts.primitive import Array, LayoutError, Primitive, Shape, shape_text
from graph_rewrite.layouts.sequences import build
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder


@dataclass(frozen=True)
class Layout:
    """A sequence of primitives that is applied to tensors of shape `source`. Without primitives it is the identity.

    Raises:
        LayoutError: an axis of the shape is empty, or a primitive does not fit the shape that it is given.
    """

    source: Shape
    primitives: tuple[Primitive, ...] = ()

    def __post_init__(self) -> None:
        if min(self.source, default=1) < 1:
            raise LayoutError(f"a layout needs positions along every axis, and the shape is {shape_text(self.source)}")
        _ = self.shapes

    @cached_property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes before, between and after the primitives."""
        step: Callable[[Shape, Primitive], Shape] = lambda shape, primitive: primitive.result(shape)  # noqa: E731
        return tuple(accumulate(self.primitives, step, initial=self.source))

    @property
    def shape(self) -> Shape:
        """Return the shape of the result."""
        return self.shapes[-1]

    def then(self, following: Layout | Primitive) -> Layout:
        """Return this layout followed by another layout, or by one more primitive.

        Raises:
            LayoutError: what follows does not fit the shape of the result.
        """
        if isinstance(following, Primitive):
            return Layout(self.source, (*self.primitives, following))
        if following.source != self.shape:
            wanted = shape_text(following.source)
            raise LayoutError(
                f"the layout that follows needs shape {wanted}, and this one gives {shape_text(self.shape)}"
            )
        return Layout(self.source, (*self.primitives, *following.primitives))

    @cached_property
    def _inverses(self) -> tuple[Primitive | None, ...]:
        return tuple(
            primitive.inverse(shape) for primitive, shape in zip(self.primitives, self.shapes, strict=False)
        )  # fmt: skip

    @property
    def is_injective(self) -> bool:
        """Tell whether each primitive keeps every element, so that there is an inverse."""
        return None not in self._inverses

    def inverse(self) -> Layout:
        """Return the layout that undoes this one.

        Raises:
            LayoutError: a primitive loses elements.
        """
        found = [primitive for primitive in reversed(self._inverses) if primitive is not None]
        if len(found) < len(self.primitives):
            raise LayoutError(f"no inverse: elements are lost by {self}")
        return Layout(self.shape, tuple(found))

    def normalised(self) -> Layout:
        """Return the layout with the same index map and, as a rule, fewer primitives: neighbours are fused, and inverse
        groups vanish (PET, section 6.3)."""
        return Layout(self.source, normal_form(self.source, self.primitives))

    def numpy(self, array: Array) -> Array:
        """Return the rearranged array.

        Raises:
            LayoutError: the array has another shape than `source`.
        """
        self._require(array.shape)
        for primitive in self.primitives:
            array = primitive.numpy(array)
        return array

    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        """Return the rearranged value, built as ONNX operators: one for neighbouring primitives where one can.

        Raises:
            LayoutError: the value has another shape than `source`.
        """
        self._require(x.shape)
        return build(op, x, self.primitives)

    def sources(self, positions: Array) -> tuple[Array, Array]:
        """Return the positions of `source` that positions [s, n] of the result are read from, as `Primitive.sources`
        does for one primitive."""
        exist = np.ones(positions.shape[1], dtype=np.bool_)
        for primitive, shape in zip(reversed(self.primitives), self.shapes[-2::-1], strict=True):
            positions, found = primitive.sources(shape, positions)
            exist &= found
            positions = np.where(exist, positions, 0)
        return positions, exist

    def index_map(self) -> Array:
        """Return, as int64 in the shape of the result, the flat index of the element of `source` that each position is
        read from, and -1 for the zeros of a padding."""
        positions = np.indices(self.shape, dtype=np.int64).reshape(len(self.shape), -1)
        found, exist = self.sources(positions)
        flat = np.zeros(found.shape[1], dtype=np.int64)
        for size, row in zip(self.source, found, strict=True):
            flat = flat * size + row
        return np.where(exist, flat, -1).reshape(self.shape)

    def _require(self, shape: Shape) -> None:
        if tuple(shape) != self.source:
            raise LayoutError(f"this layout needs shape {shape_text(self.source)}, and not {shape_text(shape)}")

    def __str__(self) -> str:
        return " -> ".join([shape_text(self.source), *map(str, self.primitives), shape_text(self.shape)])
