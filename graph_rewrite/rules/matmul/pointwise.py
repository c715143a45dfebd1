"""MatMul as pointwise convolution and back.

On CPUs ONNX Runtime computes convolutions in a blocked layout that is faster than its MatMul for many sizes, and
fuses residual sums and activations into them. The rows of x become the positions of one image of height 1:
Reshape [..., C] -> [1, 1, L, C], Transpose to [1, C, 1, L], Conv 1x1, Transpose and Reshape back. Of two such
conversions in a row the inner Transposes and Reshapes cancel.
"""

from __future__ import annotations

import math
from typing import Any

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import FROM_CHANNELS, TO_CHANNELS, reshape
from graph_rewrite.rules.helpers.constants import as_vector, varies_along
from graph_rewrite.rules.helpers.element_types import is_float
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.geometry import conv_geometry
from graph_rewrite.rules.helpers.operands import has_bias


class _Layout(Rule):
    family = "layout"


def to_channels(op: ReplacementBuilder, x: Ref) -> Ref:
    """Return [..., C] as an image [1, C, 1, L], L rows."""
    rows = reshape(op, x, (1, 1, math.prod(x.shape[:-1]), x.shape[-1]))
    image: Ref = op.Transpose(rows, perm=TO_CHANNELS)
    return image


def from_channels(op: ReplacementBuilder, image: Ref, shape: tuple[int, ...]) -> Ref:
    """Return [1, C, 1, L] as rows [..., C] of the given shape."""
    return reshape(op, op.Transpose(image, perm=FROM_CHANNELS), shape)


def _pointwise(op: ReplacementBuilder, image: Ref, w: Ref, b: Ref | None) -> Ref:
    bias = None if b is None else as_vector(op, b, w.shape[1])
    result: Ref = op.Conv(image, as_filters(op, w), bias, kernel_shape=(1, 1))
    return result


def as_filters(op: ReplacementBuilder, w: Ref) -> Ref:
    """Return a matrix [C, N] as 1x1 filters [N, C, 1, 1]."""
    return reshape(op, op.Transpose(w, perm=(1, 0)), (w.shape[1], w.shape[0], 1, 1))


def _has_convolution(x: Ref) -> bool:
    """Refuse elements for which Conv is not defined or ONNX Runtime has no kernel for it."""
    return is_float(x) and x.dtype != TensorProto.DOUBLE


def _not_linear(x: Ref, w: Ref, b: Ref | None = None) -> Refusal | None:
    if w.rank != 2:
        return Refusal("the weight is not a matrix")
    if x.rank < 2:
        return Refusal("the operand is a vector")
    if not _has_convolution(x):
        return Refusal("convolutions run on floating-point numbers, but not on doubles")
    if b is not None and not varies_along(b, 1, w.shape[1]):
        return Refusal("the bias varies along more than the columns")
    return None


class MatMulToPointwiseConv(_Layout):
    """MatMul(x, w) = Reshape(Transpose(Conv(Transpose(Reshape(x)), w transposed))), w a constant matrix"""

    def source(self, op: PatternBuilder, x: Any, w: Const) -> Any:
        return op.MatMul(x, w)

    def check(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        if has_bias(m, m.root()):
            return Refusal("the product has a constant bias, which belongs into the convolution")
        return _not_linear(x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
        return from_channels(op, _pointwise(op, to_channels(op, x), w, None), m.root().shape)


class LinearToPointwiseConv(_Layout):
    """Add(MatMul(x, w), b) = Reshape(Transpose(Conv(Transpose(Reshape(x)), w transposed, b))), w a constant matrix
    and b constant per column"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const) -> Any:
        return op.Add(op.MatMul(x, w), b)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref) -> Refusal | None:
        return _not_linear(x, w, b)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref) -> Any:
        return from_channels(op, _pointwise(op, to_channels(op, x), w, b), m.root().shape)


class FeedForwardToPointwiseConvs(_Layout):
    """Add(MatMul(f(Add(MatMul(x, v), a)), w), b) =
    Reshape(Transpose(Conv(f(Conv(Transpose(Reshape(x)), v transposed, a)), w transposed, b))), all but x constant, for
    f in Gelu, Relu

    A transformer's feed-forward network: the hidden values never leave the convolutions' layout.
    """

    def source(self, op: PatternBuilder, x: Any, v: Const, a: Const, w: Const, b: Const) -> Any:
        hidden = op.any_of(("Gelu", "Relu"))(op.Add(op.MatMul(x, v), a), _label="f")
        return op.Add(op.MatMul(hidden, w), b)

    def check(self, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Refusal | None:
        return _not_linear(x, v, a) or _not_linear(x, w, b)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Any:
        hidden = apply_like(op, m, "f", _pointwise(op, to_channels(op, x), v, a))
        return from_channels(op, _pointwise(op, hidden, w, b), m.root().shape)


class ResidualInChannels(_Layout):
    """Add(Reshape(Transpose(y)), r) = Reshape(Transpose(Add(y, Transpose(Reshape(r))))), y an image [1, C, 1, L]

    The sum is then next to the convolution, where ONNX Runtime fuses it.
    """

    def source(self, op: PatternBuilder, y: Any, shape: Const, r: Any) -> Any:
        return op.Add(op.Reshape(op.Transpose(y, perm=FROM_CHANNELS), shape, _label="rows"), r)

    def check(self, m: Match, y: Ref, shape: Ref, r: Ref) -> Refusal | None:
        if y.rank != 4 or (y.shape[0], y.shape[2]) != (1, 1) or m.root().shape[-1:] != (y.shape[1],):
            return Refusal("the sum is not of the rows of an image [1, C, 1, L]")
        alike = r.shape == m.root().shape == m.value("rows").shape
        return None if alike else Refusal("one summand is broadcast")

    def target(self, op: ReplacementBuilder, m: Match, y: Ref, shape: Ref, r: Ref) -> Any:
        return from_channels(op, op.Add(y, to_channels(op, r)), m.root().shape)


class PointwiseConvToLinear(_Layout):
    """Reshape(Transpose(Conv(Transpose(Reshape(x)), w, b))) = Add(MatMul(x, w transposed), b), w 1x1 and constant"""

    def source(self, op: PatternBuilder, x: Any, rows: Const, w: Const, b: MaybeConst, shape: Const) -> Any:
        image = op.Transpose(op.Reshape(x, rows, _label="rows"), perm=TO_CHANNELS, _label="image")
        return op.Reshape(op.Transpose(op.Conv(image, w, b, _label="conv"), perm=FROM_CHANNELS), shape)

    def check(self, m: Match, x: Ref, rows: Ref, w: Ref, b: Ref | None, shape: Ref) -> Refusal | None:
        if not conv_geometry(m.node("conv"), m.value("image"), w).is_dense_pointwise:
            return Refusal("the convolution is not pointwise with stride 1, without groups and padding")
        if x.shape[-1:] != (w.shape[1],) or m.value("rows").shape[-1] != w.shape[1]:
            return Refusal("the first Reshape does not keep the rows")
        if m.root().shape != (*x.shape[:-1], w.shape[0]):
            return Refusal("the last Reshape does not restore the leading axes")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rows: Ref, w: Ref, b: Ref | None, shape: Ref) -> Any:
        y = op.MatMul(x, _matrix(op, w))
        return y if b is None else op.Add(y, b)


def _matrix(op: ReplacementBuilder, w: Ref) -> Ref:
    """Return 1x1 filters [N, C, 1, ...] as the matrix [C, N]."""
    matrix: Ref = op.Transpose(reshape(op, w, w.shape[:2]), perm=(1, 0))
    return matrix


class PointwiseConvToChannelsLast(_Layout):
    """Conv(x, w, b) = Transpose(Add(MatMul(Transpose(x), w transposed), b)), w 1x1 and constant; the Transposes move
    the channels to the last axis and back"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return _not_dense_pointwise(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        y = op.MatMul(op.Transpose(x, perm=(0, *range(2, x.rank), 1)), _matrix(op, w))
        y = y if b is None else op.Add(y, b)
        return op.Transpose(y, perm=(0, x.rank - 1, *range(1, x.rank - 1)))


class PointwiseConvToMatMul(_Layout):
    """Conv(x, w, b) = Reshape(Add(MatMul(w, Reshape(x)), b)), w 1x1 and constant; x is reshaped to
    [batch, channels, positions]"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return _not_dense_pointwise(m, x, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        positions = reshape(op, x, (*x.shape[:2], math.prod(x.shape[2:])))
        y = op.MatMul(reshape(op, w, w.shape[:2]), positions)
        y = y if b is None else op.Add(y, reshape(op, b, (w.shape[0], 1)))
        return reshape(op, y, m.root().shape)


def _not_dense_pointwise(m: Match, x: Ref, w: Ref) -> Refusal | None:
    if conv_geometry(m.node("conv"), x, w).is_dense_pointwise:
        return None
    return Refusal("the convolution is not pointwise with stride 1, without groups and padding")


class MatMulOfPositionsToConv(_Layout):
    """Reshape(MatMul(w, Reshape(x))) = Conv(x, w), w a constant matrix; x is reshaped to
    [batch, channels, positions]"""

    def source(self, op: PatternBuilder, x: Any, positions: Const, w: Const, shape: Const) -> Any:
        return op.Reshape(op.MatMul(w, op.Reshape(x, positions, _label="positions")), shape)

    def check(self, m: Match, x: Ref, positions: Ref, w: Ref, shape: Ref) -> Refusal | None:
        if w.rank != 2 or x.rank < 3 or not _has_convolution(x):
            return Refusal("not a matrix times a floating-point image, or one of doubles")
        if m.value("positions").shape != (*x.shape[:2], math.prod(x.shape[2:])):
            return Refusal("the first Reshape does not merge the positions of an image")
        if m.root().shape != (x.shape[0], w.shape[0], *x.shape[2:]):
            return Refusal("the last Reshape does not restore the positions")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, positions: Ref, w: Ref, shape: Ref) -> Any:
        ones = (1,) * (x.rank - 2)
        return op.Conv(x, reshape(op, w, (*w.shape, *ones)), kernel_shape=ones)


class DropReshapeAroundMatMul(_Layout):
    """Reshape(MatMul(Reshape(x), w)) = MatMul(x, w), where the Reshapes merge and restore leading axes of x and w is
    a matrix"""

    def source(self, op: PatternBuilder, x: Any, rows: Const, w: Any, shape: Const) -> Any:
        return op.Reshape(op.MatMul(op.Reshape(x, rows, _label="rows"), w), shape)

    def check(self, m: Match, x: Ref, rows: Ref, w: Ref, shape: Ref) -> Refusal | None:
        if w.rank != 2 or m.value("rows").rank < 2:
            return Refusal("the operands are not rows and a matrix")
        if x.shape[-1:] != (w.shape[0],) or m.root().shape != (*x.shape[:-1], w.shape[1]):
            return Refusal("the Reshapes do more than merge and restore leading axes")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, rows: Ref, w: Ref, shape: Ref) -> Any:
        return op.MatMul(x, w)


RULES = (
    LinearToPointwiseConv, MatMulToPointwiseConv, FeedForwardToPointwiseConvs, ResidualInChannels,
    PointwiseConvToLinear, PointwiseConvToChannelsLast, PointwiseConvToMatMul, MatMulOfPositionsToConv,
    DropReshapeAroundMatMul,
)  # fmt: skip
