"""The interface of a layout primitive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]


class LayoutError(InvalidRewriteError):
    """A primitive does not fit a shape: an axis that is not there, or sizes that do not divide."""


class Primitive(ABC):
    """One step that rearranges a tensor of known shape. Primitives are immutable values: equal ones do the same.

    A primitive names axes of the tensor that it is given, counted from 0. Every method takes that tensor's shape, or
    the tensor, and raises `LayoutError` where the primitive does not fit it.
    """

    __slots__ = ()

    @abstractmethod
    def result(self, shape: Shape) -> Shape:
        """Return the shape after the primitive."""

    @abstractmethod
    def inverse(self, shape: Shape) -> Primitive | None:
        """Return the primitive that undoes this one on a tensor of this shape; None where elements are lost."""

    @abstractmethod
    def numpy(self, array: Array) -> Array:
        """Return the rearranged array. Padding is zero; elements may be of any type."""

    @abstractmethod
    def onnx(self, op: ReplacementBuilder, x: Ref) -> Ref:
        """Return the rearranged value, built as ONNX operators."""

    @abstractmethod
    def sources(self, shape: Shape, positions: Array) -> tuple[Array, Array]:
        """Return the positions that the result is read from.

        Args:
            shape: the shape before the primitive, of rank r.
            positions: positions in the result, of rank s, as int64 of shape [s, n].

        Returns:
            Positions in the tensor before as int64 [r, n], and as bool [n] which of them exist: the others are zeros
            of a padding, and their positions mean nothing.
        """


def require_axis(primitive: Primitive, shape: Shape, axis: int, count: int = 1) -> None:
    """Check that a tensor has axes `axis` to `axis + count - 1`.

    Raises:
        LayoutError: it has not.
    """
    if axis < 0 or axis + count > len(shape):
        raise LayoutError(f"{primitive} needs axis {axis + max(count - 1, 0)}, and the shape is {shape_text(shape)}")


def everywhere(positions: Array) -> Array:
    """Return the mask that says that all positions [r, n] exist."""
    return np.ones(positions.shape[1], dtype=np.bool_)


def shape_text(shape: Shape) -> str:
    """Return a shape as text, such as "[1,48,38,38]"."""
    return f"[{','.join(map(str, shape))}]"
