"""Convolutions with fewer multiplications: Toom-Cook's algorithm along one spatial axis or both (`toom_cook`).

Every step is an operator that ONNX Runtime keeps in its blocked NCHWc layout. The data's transform is a depthwise
convolution per product with the stride of a tile; the products are dense convolutions with transformed, constant
filters, of which the kernel loses the transformed axes; the results are sums and depthwise 1x1 convolutions. Only
putting the outputs in order, a Concat and a Reshape, is done in plain layout.

A wrong variant loses: the transforms move more data than the direct convolution does. Which one pays depends on
channels, size and machine (docs/families.md has measurements), so all are offered and the search measures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir import Graph
from graph_rewrite.matching import Match
from graph_rewrite.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.region import Ref, RegionBuilder
from graph_rewrite.rule import Refusal, Rule
from graph_rewrite.rules.common import reshape, take
from graph_rewrite.rules.conv_attributes import conv_geometry
from graph_rewrite.rules.toom_cook import LARGEST_TILE, Matrix, ToomCook, toom_cook

BLOCK = 16
"""Channels in a block of the NCHWc layout with AVX-512. Depthwise convolutions over other numbers of channels leave the
layout, and then the transforms take longer than what they save."""


class _Winograd(Rule):
    """F(m, r) along the axes with `tiles[axis]` = m > 1; 1 leaves an axis to the products."""

    family = "winograd"
    tiles: ClassVar[tuple[int, int]]
    relu: ClassVar[bool] = False
    error_growth: ClassVar[float]
    """Largest error measured in float32 for 3 taps and 64 to 512 channels, relative to the largest magnitude of the
    output; the direct convolution has 5e-7. Longer filters have more: docs/families.md."""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return Refusal("not a convolution of two-dimensional images in float32")
        own = conv_geometry(m.node("conv"), x, w)
        if own.group != 1 or not own.is_unstrided or any(dilation != 1 for dilation in own.dilations):
            return Refusal("the convolution has groups, strides or dilations")
        if w.shape[0] % BLOCK or w.shape[1] % BLOCK:
            return Refusal(f"the channels do not fill blocks of {BLOCK}: the transforms would leave the blocked layout")
        for outputs, taps, size in zip(self.tiles, own.kernel, m.value("conv").shape[2:], strict=True):
            if outputs == 1:
                continue
            if taps < 3 or (outputs + taps) % 2 == 0 or outputs + taps - 1 > LARGEST_TILE:
                return Refusal(f"there is no transform for {taps} taps")
            if size < outputs:
                return Refusal(f"the image has fewer than {outputs} rows or columns")
        return Refusal("a Relu follows, which belongs into the last sums") if self._leaves_relu(m) else None

    def _leaves_relu(self, m: Match) -> bool:
        result = m.value("conv")
        readers = m.consumers(result)
        return not self.relu and not m.is_output(result) and [node.op for node in readers] == ["Relu"]

    def target(self, op: RegionBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        rows, columns = (toom_cook(n, r) if n > 1 else None for n, r in zip(self.tiles, own.kernel, strict=True))
        data = [[x]] if rows is None else [[part] for part in _tiles(op, x, rows, 2, own.pads[0], shape[2])]
        if columns is not None:
            data = [_tiles(op, part, columns, 3, own.pads[1], shape[3]) for (part,) in data]
        pads = [0 if outputs > 1 else pad for outputs, pad in zip(self.tiles * 2, own.pads, strict=True)]
        products: list[list[Ref]] = []
        for i, line in enumerate(_filters(op, w, rows, columns)):
            # The bias goes into the product at the point 1, which every result contains once.
            biased = {j: b for j in range(len(line)) if (i, j) == (int(rows is not None), int(columns is not None))}
            products.append([op.Conv(data[i][j], u, biased.get(j), pads=pads) for j, u in enumerate(line)])
        if rows is not None:
            ends = [
                _results(op, list(part), rows, self.relu and columns is None) for part in zip(*products, strict=True)
            ]
            products = [list(part) for part in zip(*ends, strict=True)]
        lines = [part[0] for part in products]
        if columns is not None:
            lines = [_side_by_side(op, _results(op, part, columns, self.relu, rows is None)) for part in products]
        # [..., n, m * width] holds what [..., n * m, width] does: rows side by side are rows in order.
        image = op.Concat(*lines, axis=3) if len(lines) > 1 else lines[0]
        padded = [-(-size // outputs) * outputs for size, outputs in zip(shape[2:], self.tiles, strict=True)]
        image = reshape(op, image, (*shape[:2], *padded))
        return take(op, image, {2: range(shape[2]), 3: range(shape[3])})

    def cases(self) -> Iterator[Graph]:
        from graph_rewrite.soundness.build import model

        rng = np.random.default_rng(0)
        for taps, batch, sizes, pads, bias in _CASES:
            kernel = [taps if outputs > 1 else taps - 2 for outputs in self.tiles]
            given = {"w": rng.standard_normal((BLOCK, BLOCK, *kernel)), "b": rng.standard_normal(BLOCK)}
            image = ",".join(str(n) for n in (batch, BLOCK, *sizes))
            conv = f"Conv<pads={list(pads)}>(x, w{', b' if bias else ''})"
            body = f"t = {conv}  y = Relu(t)" if self.relu else f"y = {conv}"
            yield model(f"(float[{image}] x) => (y) {{ {body} }}", **given if bias else {"w": given["w"]})


_CASES = (
    (3, 1, (4, 4), (1, 1, 1, 1), True), (3, 2, (5, 6), (0, 0, 0, 0), False), (3, 1, (7, 5), (2, 0, 1, 3), True),
    (5, 1, (6, 9), (2, 2, 2, 2), False), (3, 1, (6, 7), (0, 1, 1, 0), True),
)  # fmt: skip
"""Taps along transformed axes, batch, height and width, pads, and whether there is a bias."""


def _tiles(op: RegionBuilder, x: Ref, transform: ToomCook, axis: int, pad: int, size: int) -> list[Ref]:
    """B^T applied to every tile of x along `axis`, for `size` outputs: an image per product, with an element per tile.

    `pad` zeros stand before x; what its last tile lacks counts as zero.
    """
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
    """A value for one of two axes."""
    return (value, other) if axis == 0 else (other, value)


def _depthwise(op: RegionBuilder, x: Ref, taps: Sequence[Fraction], along: int = 0, **attrs: Any) -> Ref:
    """Every channel of x convolved with the same taps, which are floats exactly, along an axis."""
    kernel = np.array([float(tap) for tap in taps], dtype=np.float32).reshape(1, 1, *_on(along, -1, 1))
    channels = x.shape[1]
    filters = np.ascontiguousarray(np.broadcast_to(kernel, (channels, *kernel.shape[1:])))
    result: Ref = op.Conv(x, op.constant(filters), group=channels, **attrs)
    return result


def _filters(op: RegionBuilder, w: Ref, rows: ToomCook | None, columns: ToomCook | None) -> list[list[Ref]]:
    """Filters of the products [K, C, r or 1, s or 1]: G w G^T in double precision, rounded at the end."""
    wide = op.Cast(w, to=TensorProto.DOUBLE)
    if rows is not None:
        wide = op.MatMul(_matrix(op, rows.filters), wide)
    if columns is not None:
        wide = op.MatMul(wide, op.Transpose(_matrix(op, columns.filters), perm=(1, 0)))
    wide = op.Cast(wide, to=TensorProto.FLOAT)
    lines = [wide] if rows is None else [take(op, wide, {2: range(i, i + 1)}) for i in range(rows.tile)]
    if columns is None:
        return [[line] for line in lines]
    return [[take(op, line, {3: range(j, j + 1)}) for j in range(columns.tile)] for line in lines]


def _matrix(op: RegionBuilder, matrix: Matrix) -> Ref:
    """A constant matrix of doubles; its fractions are divided as constants, so that a proof can read them exactly."""
    above, below = (
        np.array([[getattr(x, part) for x in row] for row in matrix], dtype=np.float64)
        for part in ("numerator", "denominator")
    )
    result: Ref = op.Div(op.constant(above), op.constant(below))
    return result


def _results(
    op: RegionBuilder, products: Sequence[Ref], transform: ToomCook, relu: bool, fresh: bool = True
) -> list[Ref]:
    """A^T applied to the products, and Relu: an image per output of a tile.

    Written for what ONNX Runtime fuses: Add into a convolution that nothing else reads, and Relu into that. `fresh`
    products are such convolutions themselves; others need one of their own where a Relu is to be fused.
    """
    pairs = list(zip(products[1:-1:2], products[2:-1:2], strict=True))
    even = [op.Add(plus, minus) for plus, minus in pairs]
    odd = [op.Add(_times(op, minus, Fraction(-1)), plus) for plus, minus in pairs]
    found = []
    for i in range(transform.outputs):
        total, *others = odd if i % 2 else even
        for point, part in zip(transform.points[1:], others, strict=True):
            total = op.Add(part if i == 0 and not relu else _times(op, part, point**i), total)
        for product in (*([products[0]] if i == 0 else []), *([products[-1]] if i == transform.outputs - 1 else [])):
            total = op.Add(_times(op, product, Fraction(1)) if relu and not fresh else product, total)
        found.append(op.Relu(total) if relu else total)
    return found


def _times(op: RegionBuilder, x: Ref, factor: Fraction) -> Ref:
    """x times a number, as a depthwise convolution, to which a sum can be fused."""
    return _depthwise(op, x, [factor])


def _side_by_side(op: RegionBuilder, parts: Sequence[Ref]) -> Ref:
    """Images whose columns take turns: column q of part p is column m q + p of the result."""
    shape = parts[0].shape
    joined = op.Concat(*(reshape(op, part, (*shape, 1)) for part in parts), axis=4)
    return reshape(op, joined, (*shape[:3], shape[3] * len(parts)))


class _WinogradRelu(_Winograd):
    relu = True

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Relu(op.Conv(x, w, b, _label="conv"))


class WinogradRows2(_Winograd):
    """Conv(x, w, b) = rows of A (B^T x * G w), F(2, r) along the height, w constant"""

    tiles = (2, 1)
    error_growth = 6e-7


class WinogradRows2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of rows of A (B^T x * G w), F(2, r) along the height, w constant"""

    tiles = (2, 1)
    error_growth = 6e-7


class WinogradRows4(_Winograd):
    """Conv(x, w, b) = rows of A (B^T x * G w), F(4, r) along the height, w constant"""

    tiles = (4, 1)
    error_growth = 4e-6


class WinogradRows4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of rows of A (B^T x * G w), F(4, r) along the height, w constant"""

    tiles = (4, 1)
    error_growth = 4e-6


class WinogradColumns2(_Winograd):
    """Conv(x, w, b) = columns of (x B * w G^T) A^T, F(2, s) along the width, w constant"""

    tiles = (1, 2)
    error_growth = 6e-7


class WinogradColumns2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of columns of (x B * w G^T) A^T, F(2, s) along the width, w constant"""

    tiles = (1, 2)
    error_growth = 6e-7


class WinogradColumns4(_Winograd):
    """Conv(x, w, b) = columns of (x B * w G^T) A^T, F(4, s) along the width, w constant"""

    tiles = (1, 4)
    error_growth = 4e-6


class WinogradColumns4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of columns of (x B * w G^T) A^T, F(4, s) along the width, w constant"""

    tiles = (1, 4)
    error_growth = 4e-6


class Winograd2x2(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(2, r) by F(2, s), w constant"""

    tiles = (2, 2)
    error_growth = 6e-7


class Winograd2x2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(2, r) by F(2, s), w constant"""

    tiles = (2, 2)
    error_growth = 6e-7


class Winograd4x2(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(2, s), w constant"""

    tiles = (4, 2)
    error_growth = 4e-6


class Winograd4x2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(2, s), w constant"""

    tiles = (4, 2)
    error_growth = 4e-6


class Winograd4x4(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(4, s), w constant"""

    tiles = (4, 4)
    error_growth = 8e-6


class Winograd4x4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(4, s), w constant"""

    tiles = (4, 4)
    error_growth = 8e-6


RULES = (
    WinogradRows2,
    WinogradRows2Relu,
    WinogradRows4,
    WinogradRows4Relu,
    WinogradColumns2,
    WinogradColumns2Relu,
    WinogradColumns4,
    WinogradColumns4Relu,
    Winograd2x2,
    Winograd2x2Relu,
    Winograd4x2,
    Winograd4x2Relu,
    Winograd4x4,
    Winograd4x4Relu,
)
