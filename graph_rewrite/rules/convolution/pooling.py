"""Pooling: averages as reductions and back or as convolutions, pools before and after Relu and pointwise convolutions.

Where channels fill no blocks, ONNX Runtime pools outside of its blocked layout, thirty times as slowly as a depthwise
convolution takes the same averages.

An average over positions and a convolution over channels commute. Which order is less work depends on the strides and
on the channels before and after: a transition of DenseNet (Huang et al., "Densely Connected Convolutional Networks",
section 3) convolves four times as many positions as it keeps.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Maybe, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.element_types import is_float, numpy_dtype
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.geometry import Geometry, conv_geometry, geometry


class _Pooling(Rule):
    family = "pooling"


class GlobalAveragePoolToReduceMean(_Pooling):
    """GlobalAveragePool(x) = ReduceMean(x, spatial axes)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.GlobalAveragePool(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.ReduceMean(x, op.ints(*range(2, x.rank)), keepdims=1)


class ReduceMeanToGlobalAveragePool(_Pooling):
    """ReduceMean(x, spatial axes) = Reshape(GlobalAveragePool(x)), without the Reshape where the axes are kept"""

    def source(self, op: PatternBuilder, x: Any, axes: MaybeConst) -> Any:
        return op.ReduceMean(x, axes, _label="mean")

    def check(self, m: Match, x: Ref, axes: Ref | None) -> Refusal | None:
        # Before opset 18 the axes were an attribute.
        named = m.attrs("mean").get("axes") if axes is None else ints(axes)
        spatial = list(range(2, x.rank))
        if not is_float(x) or not spatial or sorted(axis % x.rank for axis in named or ()) != spatial:
            return Refusal("the mean is not over all spatial axes of an image")
        return Refusal("ONNX Runtime pools no doubles on the CPU") if x.dtype == TensorProto.DOUBLE else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, axes: Ref | None) -> Any:
        return reshape(op, op.GlobalAveragePool(x), m.root().shape)


class AveragePoolToGlobal(_Pooling):
    """AveragePool(x) = GlobalAveragePool(x), where the one window covers the image"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.AveragePool(x, kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        own = geometry(m.node("pool"), x, m.attr("kernel"))
        if own.kernel != x.shape[2:] or any(own.pads) or not own.is_undilated:
            return Refusal("the window does not cover the image exactly")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.GlobalAveragePool(x)


def _border_windows(m: Match, x: Ref) -> Refusal | None:
    """Refuse a pool with a window that sees padding alone: it gives the least number, which Relu would change."""
    own = geometry(m.node("pool"), x, m.attr("kernel"))
    gaps = any(own.pads) and not own.is_undilated
    leaps = m.attrs("pool").get("ceil_mode", 0) and any(s > k for s, k in zip(own.strides, own.kernel, strict=True))
    if gaps or leaps:
        return Refusal("a window may see nothing but padding")
    return None


class ReluAfterMaxPool(_Pooling):
    """MaxPool(Relu(x)) = Relu(MaxPool(x))"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.MaxPool(op.Relu(x), kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return _border_windows(m, x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.Relu(op.MaxPool(x, **m.attrs("pool")))


class ReluBeforeMaxPool(_Pooling):
    """Relu(MaxPool(x)) = MaxPool(Relu(x))"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Relu(op.MaxPool(x, kernel_shape=op.attr("kernel"), _label="pool"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return _border_windows(m, x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.MaxPool(op.Relu(x), **m.attrs("pool"))


def _elements_inside(own: Geometry, image: Ref, windows: Ref) -> NDArray[np.int64]:
    """Return how many elements of each window lie in the image, int64 [1, 1, windows of each axis]."""
    found = np.ones((1, 1), np.int64)
    before = own.pads[: len(own.kernel)]
    axes = zip(image.shape[2:], windows.shape[2:], own.kernel, own.strides, own.dilations, before, strict=True)
    for size, count, kernel, stride, dilation, pad in axes:
        at = np.arange(count)[:, None] * stride - pad + np.arange(kernel) * dilation
        found = found[..., None] * ((at >= 0) & (at < size)).sum(axis=1)
    return found


class AveragePoolAsConv(_Pooling):
    """AveragePool(x) = Conv(x, 1 / k everywhere, per channel) for windows of k elements, times k over the number of
    those that lie in the image, where padding does not count"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.AveragePool(x, kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        if x.dtype != TensorProto.FLOAT or not 3 <= x.rank <= 5:
            return Refusal("what is pooled is no image in float32")
        if m.attrs("pool").get("ceil_mode", 0):
            return Refusal("the number of windows is rounded up")
        own = geometry(m.node("pool"), x, m.attr("kernel"))
        if not own.is_undilated:
            return Refusal("the window has gaps")
        if all(size == 1 for size in own.kernel):
            return Refusal("a window has one element")
        if not _elements_inside(own, x, m.root()).all():
            return Refusal("a window sees nothing but padding")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        own, channels = geometry(m.node("pool"), x, m.attr("kernel")), x.shape[1]
        dtype, count = numpy_dtype(x), math.prod(own.kernel)
        one, taps = op.constant(np.ones((1, 1, *own.kernel), dtype)), op.constant(np.array(count, dtype))
        filters = op.Expand(op.Div(one, taps), op.ints(channels, 1, *own.kernel))
        sums = op.Conv(x, filters, **{**own.attrs(), "group": channels})
        inside = _elements_inside(own, x, m.root())
        if m.attrs("pool").get("count_include_pad", 0) or (inside == count).all():
            return sums
        return op.Mul(sums, op.Div(taps, op.constant(inside.astype(dtype))))


def _average(op: PatternBuilder, x: Any) -> Any:
    return op.any_of(("AveragePool", "GlobalAveragePool"))(x, _label="pool")


def _commute(m: Match, conv: Geometry, image: Ref, b: Ref | None) -> Refusal | None:
    """Refuse a convolution and averages of `image` whose order matters."""
    if not (conv.is_pointwise and conv.is_unstrided):
        return Refusal("a filter sees more than one position, or skips some")
    node = m.node("pool")
    if node.op == "GlobalAveragePool":
        return None
    kernel = node.attrs["kernel_shape"]
    inside = _elements_inside(geometry(node, image, kernel), image, m.value("pool"))
    if not inside.all():
        return Refusal("a window sees nothing but padding")
    if b is not None and node.attrs.get("count_include_pad", 0) and (inside < math.prod(kernel)).any():
        return Refusal("padding counts in an average, which makes less of the bias")
    return None


class PointwiseConvAfterAverage(_Pooling):
    """f(Conv(x, w, b)) = Conv(f(x), w, b) for f in AveragePool and GlobalAveragePool, and filters of one tap; without
    a bias, or where padding does not count"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return _average(op, op.Conv(x, w, b, _label="conv"))

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return _commute(m, conv_geometry(m.node("conv"), x, w), m.value("conv"), b)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        return op.Conv(apply_like(op, m, "pool", x), w, b, **conv_geometry(m.node("conv"), x, w).attrs())


class PointwiseConvBeforeAverage(_Pooling):
    """Conv(f(x), w, b) = f(Conv(x, w, b)) for f in AveragePool and GlobalAveragePool, and filters of one tap; without
    a bias, or where padding does not count"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Maybe) -> Any:
        return op.Conv(_average(op, x), w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        return _commute(m, conv_geometry(m.node("conv"), m.value("pool"), w), x, b)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        return apply_like(op, m, "pool", op.Conv(x, w, b, **conv_geometry(m.node("conv"), x, w).attrs()))


RULES = (
    GlobalAveragePoolToReduceMean, ReduceMeanToGlobalAveragePool, AveragePoolToGlobal, AveragePoolAsConv,
    ReluAfterMaxPool, ReluBeforeMaxPool, PointwiseConvAfterAverage, PointwiseConvBeforeAverage,
)  # fmt: skip
