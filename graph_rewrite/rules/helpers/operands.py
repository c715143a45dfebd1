"""Constants that stand beside a matrix product or a convolution: scales, biases, weights in parts."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from onnx import helper

from graph_rewrite.ir.constants import Constant
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape


def numpy_dtype(ref: Ref) -> np.dtype[Any]:
    """The NumPy element type of a value."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(ref.dtype))


def varies_along(ref: Ref, axis_from_right: int, size: int) -> bool:
    """Whether `ref`, broadcast against another value, varies at most along its axis number `axis_from_right`
    counted from the right (1 is the last), where that axis has `size` elements."""
    if ref.type.size == 1:
        return True
    return ref.type.size == size and ref.rank >= axis_from_right and ref.shape[-axis_from_right] == size


def as_vector(op: ReplacementBuilder, ref: Ref, size: int) -> Ref:
    """A constant for which `varies_along` holds, as a vector of `size` elements."""
    if ref.type.size == size:
        return reshape(op, ref, (size,))
    expanded: Ref = op.Expand(reshape(op, ref, (1,)), op.ints(size))
    return expanded


def as_scale(op: ReplacementBuilder, ref: Ref) -> Ref:
    """A constant for which `varies_along` holds, as a scalar or a vector."""
    return reshape(op, ref, () if ref.type.size == 1 else (ref.type.size,))


def has_bias(m: Match, product: Ref) -> bool:
    """Whether nothing but the Add of a constant bias per column reads a product: rules for the pair apply then, and
    one for the product alone would only leave the bias behind."""
    readers = m.consumers(product)
    if len(readers) != 1 or readers[0].op != "Add" or readers[0].domain or m.is_output(product):
        return False
    others = [value for value in readers[0].inputs if value is not None and value != product.external]
    constant = m.graph.constants.get(others[0]) if others else None
    return constant is not None and varies_along(Ref(constant.type), 1, product.shape[-1])


def swapped(rank: int) -> tuple[int, ...]:
    """The permutation that exchanges the last two of `rank` axes."""
    return (*range(rank - 2), rank - 1, rank - 2)


def ordered(first: Ref, second: Ref) -> bool:
    """An arbitrary but fixed order of a graph's values, so that an equation which is symmetric in two of them
    gives one rewrite and not two."""
    return (first.external or 0) <= (second.external or 0)


def parts(op: ReplacementBuilder, weight: Ref, sizes: Sequence[int], axis: int) -> list[Ref]:
    """A constant cut along `axis`. Pieces that were concatenated before come back as they were, so that a merge
    and its inverse give the constants they started from."""
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
