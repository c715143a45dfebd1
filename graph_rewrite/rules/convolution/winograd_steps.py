"""The steps of a convolution by Toom-Cook's algorithm, as operators that stay in ONNX Runtime's blocked layout."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any

import numpy as np

from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.convolution.toom_cook import Matrix, ToomCook
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.slices import take


def data_tiles(op: ReplacementBuilder, x: Ref, transform: ToomCook, axis: int, pad: int, size: int) -> list[Ref]:
    """Apply B^T to every tile of x along `axis`, for `size` outputs: an image per product, with an element per tile.
    `pad` zeros stand before x; elements that the last tile lacks count as zero."""
    count, found = -(-size // transform.outputs), []
    for row in transform.data:
        used = [k for k, coefficient in enumerate(row) if coefficient]
        # A negative padding can't be: taps that are zero come first where the window would begin inside x.
        first, last = min(used[0], pad), used[-1]
        taps = row[first : last + 1]
        dilation = 2 if len(taps) > 2 and not any(taps[1::2]) else 1
        after = transform.outputs * (count - 1) + last - pad - (x.shape[axis] - 1)
        along = axis - 2
        found.append(_depthwise(
            op, x, taps[::dilation], along,
            pads=_on(along, pad - first, 0) + _on(along, max(after, 0), 0), strides=_on(along, transform.outputs, 1),
            dilations=_on(along, dilation, 1),
        ))  # fmt: skip
    return found


def _on(axis: int, value: int, other: int) -> tuple[int, int]:
    """Return a value for one of two axes."""
    return (value, other) if axis == 0 else (other, value)


def _depthwise(op: ReplacementBuilder, x: Ref, taps: Sequence[Fraction], along: int = 0, **attrs: Any) -> Ref:
    """Convolve every channel of x with the same taps, which are exact floats, along an axis."""
    kernel = np.array([float(tap) for tap in taps], dtype=np.float32).reshape(1, 1, *_on(along, -1, 1))
    channels = x.shape[1]
    filters = np.ascontiguousarray(np.broadcast_to(kernel, (channels, *kernel.shape[1:])))
    result: Ref = op.Conv(x, op.constant(filters), group=channels, **attrs)
    return result


def filter_tiles(op: ReplacementBuilder, w: Ref, rows: ToomCook | None, columns: ToomCook | None) -> list[list[Ref]]:
    """Return the filters of the products [K, C, r or 1, s or 1]: G w G^T, where G is integers over a denominator per
    row."""
    if rows is not None:
        above, below = _fractions(op, rows.filters)
        w = op.Div(op.MatMul(above, w), below)
    if columns is not None:
        above, below = _fractions(op, columns.filters)
        w = op.Div(op.MatMul(w, op.Transpose(above, perm=(1, 0))), reshape(op, below, (columns.tile,)))
    lines = [w] if rows is None else [take(op, w, {2: range(i, i + 1)}) for i in range(rows.tile)]
    if columns is None:
        return [[line] for line in lines]
    return [[take(op, line, {3: range(j, j + 1)}) for j in range(columns.tile)] for line in lines]


def _fractions(op: ReplacementBuilder, matrix: Matrix) -> tuple[Ref, Ref]:
    """Return a matrix as integers, and a column of denominators. The graph divides, so that proofs read the division
    exactly: 1/6 is no float."""
    below = [lcm(*(x.denominator for x in row)) for row in matrix]
    above = [[float(x * d) for x in row] for row, d in zip(matrix, below, strict=True)]
    return op.constant(np.array(above, np.float32)), op.constant(np.array(below, np.float32).reshape(-1, 1))


def result_images(
    op: ReplacementBuilder, products: Sequence[Ref], transform: ToomCook, relu: bool, fresh: bool = True
) -> list[Ref]:
    """Apply A^T to the products, and Relu: an image per output of a tile.

    The form suits ONNX Runtime's fusions: Add into a convolution that nothing else reads, and Relu into that. `fresh`
    products are such convolutions themselves; others need one of their own where a Relu is to be fused.
    """
    pairs = list(zip(products[1:-1:2], products[2:-1:2], strict=True))
    even = [op.Add(plus, minus) for plus, minus in pairs]
    odd = [op.Add(times(op, minus, Fraction(-1)), plus) for plus, minus in pairs]
    found = []
    for i in range(transform.outputs):
        total, *others = odd if i % 2 else even
        for point, part in zip(transform.points[1:], others, strict=True):
            total = op.Add(part if i == 0 and not relu else times(op, part, point**i), total)
        for product in (*([products[0]] if i == 0 else []), *([products[-1]] if i == transform.outputs - 1 else [])):
            total = op.Add(times(op, product, Fraction(1)) if relu and not fresh else product, total)
        found.append(op.Relu(total) if relu else total)
    return found


def times(op: ReplacementBuilder, x: Ref, factor: Fraction) -> Ref:
    """Return x times a number, as a depthwise convolution, to which a sum can be fused."""
    return _depthwise(op, x, [factor])


def side_by_side(op: ReplacementBuilder, parts: Sequence[Ref]) -> Ref:
    """Return images whose columns take turns: column q of image p is column m q + p of the result."""
    shape = parts[0].shape
    joined = op.Concat(*(reshape(op, part, (*shape, 1)) for part in parts), axis=4)
    return reshape(op, joined, (*shape[:3], shape[3] * len(parts)))
