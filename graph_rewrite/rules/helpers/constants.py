"""Constants: their elements as far as a condition may look at them, and scales, biases and weights in other shapes."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.constants import Constant
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape

_LARGEST_READ = 1 << 22
"""Elements of the largest constant that a condition reads."""
_UNIFORM: weakref.WeakKeyDictionary[Constant, float | None] = weakref.WeakKeyDictionary()


def is_readable(constant: Constant) -> bool:
    """Tell whether a condition may read the elements: weights that search has made are not computed for it."""
    return constant.type.size <= _LARGEST_READ and (constant.is_small or constant.expression is None)


def uniform(ref: Ref | None) -> float | None:
    """Return the value that all elements of a constant have; None where they differ, are none, or are not to be
    read."""
    if ref is None or ref.constant is None or not is_readable(ref.constant):
        return None
    if ref.constant not in _UNIFORM:
        array = ref.numpy().reshape(-1)
        alike = array.size > 0 and array.dtype.kind in "biuf" and bool((array == array[0]).all())
        _UNIFORM[ref.constant] = float(array[0]) if alike else None
    return _UNIFORM[ref.constant]


def ints(ref: Ref | None) -> tuple[int, ...] | None:
    """Return the elements of an integer constant (axes, sizes, indices); None where it is left out, not constant or
    large."""
    if ref is None or ref.constant is None or not ref.constant.is_small:
        return None
    return tuple(int(element) for element in ref.numpy().reshape(-1))


def finite_reciprocal(ref: Ref) -> bool:
    """Tell whether 1/c neither overflows nor loses precision for any element of a readable floating-point constant."""
    if ref.constant is None or not is_readable(ref.constant):
        return False
    magnitude = np.abs(ref.numpy().astype(np.float64))
    limits = np.finfo(ref.numpy().dtype) if ref.dtype != TensorProto.BFLOAT16 else np.finfo(np.float32)
    low, high = float(limits.tiny), 1.0 / float(limits.tiny)
    return bool(magnitude.size) and bool(((magnitude > low) & (magnitude < high)).all())


def varies_along(ref: Ref, axis_from_right: int, size: int) -> bool:
    """Tell whether `ref`, broadcast against another value, varies at most along its axis number `axis_from_right`
    counted from the right (1 is the last), where that axis has `size` elements."""
    if ref.type.size == 1:
        return True
    return ref.type.size == size and ref.rank >= axis_from_right and ref.shape[-axis_from_right] == size


def as_vector(op: ReplacementBuilder, ref: Ref, size: int) -> Ref:
    """Return a constant for which `varies_along` holds, as a vector of `size` elements."""
    if ref.type.size == size:
        return reshape(op, ref, (size,))
    expanded: Ref = op.Expand(reshape(op, ref, (1,)), op.ints(size))
    return expanded


def as_scale(op: ReplacementBuilder, ref: Ref) -> Ref:
    """Return a constant for which `varies_along` holds, as a scalar or a vector."""
    return reshape(op, ref, () if ref.type.size == 1 else (ref.type.size,))


def parts(op: ReplacementBuilder, weight: Ref, sizes: Sequence[int], axis: int) -> list[Ref]:
    """Cut a constant along `axis`. Constants that were concatenated before come back as they were, so that a merge and
    its inverse give the constants they started from."""
    axis %= weight.rank
    pieces = _concatenated(weight.constant, sizes, axis)
    if pieces is not None:
        return [Ref(piece.type, constant=piece) for piece in pieces]
    bounds = [0, *np.cumsum(sizes).tolist()]
    return [op.Slice(weight, op.ints(start), op.ints(end), op.ints(axis)) for start, end in pairwise(bounds)]


def _concatenated(constant: Constant | None, sizes: Sequence[int], axis: int) -> list[Constant] | None:
    expression = None if constant is None else constant.expression
    if expression is None or expression.op != "Concat":
        return None
    pieces = [piece for piece in expression.inputs if piece is not None]
    if expression.attrs["axis"] % pieces[0].type.rank != axis:
        return None
    return pieces if [piece.type.shape[axis] for piece in pieces] == list(sizes) else None
