"""Convolutions with fewer multiplications: Toom-Cook's algorithm along one spatial axis or both (`toom_cook`).

Every step is an operator that ONNX Runtime keeps in its blocked NCHWc layout. The data's transform is a depthwise
convolution per product with the stride of a tile; the products are dense convolutions with transformed, constant
filters, of which the kernel loses the transformed axes; the results are sums and depthwise 1x1 convolutions. Only
putting the outputs in order, a Concat and a Reshape, is done in plain layout.

A wrong variant loses: the transforms move more data than the direct convolution does. Which one pays depends on
channels, size and machine (benchmarks/layers-zen4.md has measurements), so all are offered and the search measures.
"""

from __future__ import annotations

from math import prod
from typing import Any, ClassVar

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.convolution.toom_cook import LARGEST_TILE, ToomCook, toom_cook
from graph_rewrite.rules.convolution.winograd_steps import data_tiles, filter_tiles, result_images, side_by_side
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.blocks import BLOCK
from graph_rewrite.rules.helpers.geometry import conv_geometry
from graph_rewrite.rules.helpers.slices import take


class _Winograd(Rule):
    """The algorithm F(m, r) along the axes with `tiles[axis]` = m > 1; 1 leaves an axis to the products."""

    family = "winograd"
    by_structure = True
    tiles: ClassVar[tuple[int, int]]
    relu: ClassVar[bool] = False
    error_growth: ClassVar[float]
    """Largest error measured in float32 for 3 taps and 64 to 512 channels, relative to the largest magnitude of the
    output; the direct convolution has 5e-7. Longer filters have more (7 taps with m = 4: 3e-5), as `amplification`
    tells."""

    def transforms(self, kernel: tuple[int, ...]) -> tuple[ToomCook | None, ToomCook | None]:
        """Return the transforms along rows and columns, None for an axis that the products keep.

        Raises:
            ValueError: there is none for so many taps.
        """
        rows, columns = (toom_cook(n, taps) if n > 1 else None for n, taps in zip(self.tiles, kernel, strict=True))
        return rows, columns

    def amplification(self, kernel: tuple[int, ...]) -> float:
        """Return a bound of the growth of rounding errors: the factor by which magnitudes on the way may exceed those
        of the direct convolution. In practice errors grow by a tenth of it, since signs are mixed."""
        return prod(1.0 if t is None else t.amplification for t in self.transforms(kernel))

    def weight_growth(self, kernel: tuple[int, ...]) -> float:
        """Return the elements of the transformed filters per element of the filters."""
        return prod(1.0 if t is None else float(t.weight_growth) for t in self.transforms(kernel))

    def channels_of_a_block(self) -> int:
        """Number of channels of which the convolution has to have multiples."""
        return BLOCK

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if x.rank != 4 or x.dtype != TensorProto.FLOAT:
            return Refusal("not a convolution of two-dimensional images in float32")
        own = conv_geometry(m.node("conv"), x, w)
        if not own.is_plain:
            return Refusal("the convolution has groups, strides or dilations")
        block = self.channels_of_a_block()
        if w.shape[0] % block or w.shape[1] % block:
            return Refusal(f"the channels do not fill blocks of {block}: the transforms would leave the blocked layout")
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

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, shape = conv_geometry(m.node("conv"), x, w), m.root().shape
        rows, columns = self.transforms(own.kernel)
        data = [[x]] if rows is None else [[part] for part in data_tiles(op, x, rows, 2, own.pads[0], shape[2])]
        if columns is not None:
            data = [data_tiles(op, part, columns, 3, own.pads[1], shape[3]) for (part,) in data]
        pads = [0 if outputs > 1 else pad for outputs, pad in zip(self.tiles * 2, own.pads, strict=True)]
        products: list[list[Ref]] = []
        for i, line in enumerate(filter_tiles(op, w, rows, columns)):
            # The bias goes into the product at the point 1, which every result contains once.
            biased = {j: b for j in range(len(line)) if (i, j) == (int(rows is not None), int(columns is not None))}
            products.append([op.Conv(data[i][j], u, biased.get(j), pads=pads) for j, u in enumerate(line)])
        if rows is not None:
            ends = [
                result_images(op, list(part), rows, self.relu and columns is None)
                for part in zip(*products, strict=True)
            ]
            products = [list(part) for part in zip(*ends, strict=True)]
        lines = [part[0] for part in products]
        if columns is not None:
            lines = [side_by_side(op, result_images(op, part, columns, self.relu, rows is None)) for part in products]
        # [..., n, m * width] holds what [..., n * m, width] does: rows side by side are rows in order.
        image = op.Concat(*lines, axis=3) if len(lines) > 1 else lines[0]
        padded = [-(-size // outputs) * outputs for size, outputs in zip(shape[2:], self.tiles, strict=True)]
        image = reshape(op, image, (*shape[:2], *padded))
        return take(op, image, {2: range(shape[2]), 3: range(shape[3])})


class _WinogradRelu(_Winograd):
    relu = True

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Relu(op.Conv(x, w, b, _label="conv"))


class WinogradRows2(_Winograd):
    """Conv(x, w, b) = rows of A (B^T x * G w), F(2, r) along the height, w constant"""

    tiles = (2, 1)
    error_growth = 8e-7


class WinogradRows2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of rows of A (B^T x * G w), F(2, r) along the height, w constant"""

    tiles = (2, 1)
    error_growth = 8e-7


class WinogradRows4(_Winograd):
    """Conv(x, w, b) = rows of A (B^T x * G w), F(4, r) along the height, w constant"""

    tiles = (4, 1)
    error_growth = 2e-6


class WinogradRows4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of rows of A (B^T x * G w), F(4, r) along the height, w constant"""

    tiles = (4, 1)
    error_growth = 2e-6


class WinogradColumns2(_Winograd):
    """Conv(x, w, b) = columns of (x B * w G^T) A^T, F(2, s) along the width, w constant"""

    tiles = (1, 2)
    error_growth = 8e-7


class WinogradColumns2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of columns of (x B * w G^T) A^T, F(2, s) along the width, w constant"""

    tiles = (1, 2)
    error_growth = 8e-7


class WinogradColumns4(_Winograd):
    """Conv(x, w, b) = columns of (x B * w G^T) A^T, F(4, s) along the width, w constant"""

    tiles = (1, 4)
    error_growth = 2e-6


class WinogradColumns4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of columns of (x B * w G^T) A^T, F(4, s) along the width, w constant"""

    tiles = (1, 4)
    error_growth = 2e-6


class Winograd2x2(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(2, r) by F(2, s), w constant"""

    tiles = (2, 2)
    error_growth = 8e-7


class Winograd2x2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(2, r) by F(2, s), w constant"""

    tiles = (2, 2)
    error_growth = 8e-7


class Winograd4x2(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(2, s), w constant"""

    tiles = (4, 2)
    error_growth = 3e-6


class Winograd4x2Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(2, s), w constant"""

    tiles = (4, 2)
    error_growth = 3e-6


class Winograd4x4(_Winograd):
    """Conv(x, w, b) = tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(4, s), w constant"""

    tiles = (4, 4)
    error_growth = 8e-6


class Winograd4x4Relu(_WinogradRelu):
    """Relu(Conv(x, w, b)) = Relu of tiles of A (B^T x B * G w G^T) A^T, F(4, r) by F(4, s), w constant"""

    tiles = (4, 4)
    error_growth = 8e-6


RULES = (
    WinogradRows2, WinogradRows2Relu, WinogradRows4, WinogradRows4Relu, WinogradColumns2, WinogradColumns2Relu,
    WinogradColumns4, WinogradColumns4Relu, Winograd2x2, Winograd2x2Relu, Winograd4x2, Winograd4x2Relu, Winograd4x4,
    Winograd4x4Relu,
)  # fmt: skip
