"""Pooling: averages as reductions and back or as convolutions, Relu past MaxPool, pools of one element as strides.

Where channels fill no blocks, ONNX Runtime pools outside of its blocked layout, thirty times as slowly as a depthwise
convolution takes the same averages.

A pool of one element per window takes every s-th position, from the first or, behind a Slice, from a later one on: the
two halves of a factorised reduction (Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition",
appendix A.1). Strides of a convolution do the same. A Slice along rows or columns leaves ONNX Runtime's blocked layout;
a depthwise convolution with a one among zeros stays in it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.element_types import is_float, numpy_dtype
from graph_rewrite.rules.helpers.geometry import conv_geometry, geometry
from graph_rewrite.rules.helpers.slices import slice_ranges


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
        if own.kernel != x.shape[2:] or any(own.pads) or any(dilation != 1 for dilation in own.dilations):
            return Refusal("the window does not cover the image exactly")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.GlobalAveragePool(x)


def _border_windows(m: Match, x: Ref) -> Refusal | None:
    """Refuse a pool with a window that sees padding alone: it gives the least number, which Relu would change."""
    own = geometry(m.node("pool"), x, m.attr("kernel"))
    gaps = any(own.pads) and any(dilation != 1 for dilation in own.dilations)
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


def _picks(m: Match, x: Ref) -> tuple[int, ...] | Refusal:
    """Return the strides of a pool whose windows have one element each."""
    own = geometry(m.node("pool"), x, m.attr("kernel"))
    if any(size != 1 for size in own.kernel) or any(own.pads):
        return Refusal("a window has more than one element, or sees padding")
    if m.attrs("pool").get("ceil_mode", 0):
        return Refusal("the number of windows is rounded up")
    return own.strides


def _pool(op: PatternBuilder, x: Any) -> Any:
    return op.any_of(("AveragePool", "MaxPool"))(x, kernel_shape=op.attr("kernel"), _label="pool")


class ConvOfSubsampling(_Pooling):
    """Conv(Pool(x, strides s), w, b, strides t) = Conv(x, w, b, strides s * t) for AveragePool and MaxPool of one
    element per window, and filters of one tap; x no Slice, with which the pool is better made a convolution"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(_pool(op, x), w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        node = m.producer(x)
        if node is not None and node.op == "Slice":
            return Refusal("what is pooled is a Slice, which would stay: SubsamplingOfSliceAsConv takes both")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        inner, own = _picks(m, x), conv_geometry(m.node("conv"), m.value("pool"), w)
        if isinstance(inner, Refusal):
            return inner
        if any(size != 1 for size in own.kernel):
            return Refusal("the filters have more than one tap")
        strides = tuple(s * t for s, t in zip(inner, own.strides, strict=True))
        before = tuple(s * pad for s, pad in zip(inner, own.pads[: len(inner)], strict=True))
        # As much behind as the last window needs: what it sees there was padding before.
        after = tuple(
            max(0, (count - 1) * stride + 1 - pad - size)
            for count, stride, pad, size in zip(m.root().shape[2:], strides, before, x.shape[2:], strict=True)
        )
        attrs = {**own.attrs(), "strides": strides, "pads": (*before, *after)}
        return op.Conv(x, w, b, **attrs)


class _SubsamplingOfSlice(_Pooling):
    # The other half of a factorised reduction, and the normalisation behind both.
    carried_by = ("FoldBatchNormAfterTwoConvs", "ConvOfSubsampling")

    def picked(self, op: ReplacementBuilder, m: Match, x: Ref, ranges: Mapping[int, range]) -> Ref | Refusal:
        """Return what a pool takes of a slice of an image, by a depthwise convolution."""
        strides = _picks(m, m.value("slice"))
        if isinstance(strides, Refusal):
            return strides
        if x.rank < 3 or x.dtype != TensorProto.FLOAT or any(axis < 2 for axis in ranges):
            return Refusal("the slice is not one of rows and columns of an image in float32")
        first = [ranges.get(axis, range(x.shape[axis])) for axis in range(2, x.rank)]
        if any(taken.step != 1 or not len(taken) for taken in first):
            return Refusal("the slice is empty, or has steps")
        kernel = tuple(taken.start + 1 for taken in first)
        if all(size == 1 for size in kernel):
            return Refusal("the slice starts at the beginning: the pool takes the same without it")
        if any(size > stride for size, stride in zip(kernel, strides, strict=True)):
            return Refusal("the slice starts later than the first window ends: a filter would be mostly zeros")
        counts = tuple((n - k) // s + 1 for n, k, s in zip(x.shape[2:], kernel, strides, strict=True))
        if counts != m.root().shape[2:]:
            return Refusal("the slice ends before the image does")
        tap = np.zeros((1, 1, *kernel), numpy_dtype(x))
        tap.flat[-1] = 1
        filters = op.Expand(op.constant(tap), op.ints(x.shape[1], 1, *kernel))
        result: Ref = op.Conv(x, filters, kernel_shape=kernel, strides=strides, group=x.shape[1])
        return result


class SubsamplingOfSliceAsConv(_SubsamplingOfSlice):
    """Pool(Slice(x, from k), strides s) = Conv(x, e, strides s) for AveragePool and MaxPool of one element per window,
    per channel, where e is 1 at k and 0 before"""

    def source(self, op: PatternBuilder, x: Any, starts: Const, ends: Const, axes: Maybe, steps: Maybe) -> Any:
        return _pool(op, op.Slice(x, starts, ends, axes, steps, _label="slice"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *bounds: Any) -> Any:
        ranges = slice_ranges(x, *bounds)
        return ranges if isinstance(ranges, Refusal) else self.picked(op, m, x, ranges)


class SubsamplingOfTwoSlicesAsConv(_SubsamplingOfSlice):
    """Pool(Slice(Slice(x, from j), from k), strides s) = Conv(x, e, strides s) for AveragePool and MaxPool of one
    element per window, per channel, where e is 1 at j of one axis and k of another, and 0 before"""

    def source(
        self, op: PatternBuilder, x: Any, s0: Const, e0: Const, a0: Maybe, k0: Maybe, s1: Const, e1: Const, a1: Maybe,
        k1: Maybe,
    ) -> Any:  # fmt: skip
        return _pool(op, op.Slice(op.Slice(x, s0, e0, a0, k0, _label="inner"), s1, e1, a1, k1, _label="slice"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *bounds: Any) -> Any:
        inner, outer = slice_ranges(x, *bounds[:4]), slice_ranges(m.value("inner"), *bounds[4:])
        if isinstance(inner, Refusal):
            return inner
        if isinstance(outer, Refusal):
            return outer
        if inner.keys() & outer.keys():
            return Refusal("both slices cut the same axis")
        return self.picked(op, m, x, inner | outer)


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
        if any(dilation != 1 for dilation in m.attrs("pool").get("dilations", ())):
            return Refusal("the window has gaps")
        if all(size == 1 for size in m.attr("kernel")):
            return Refusal("a window has one element")
        if not self._inside(m, x).all():
            return Refusal("a window sees nothing but padding")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        own, channels = geometry(m.node("pool"), x, m.attr("kernel")), x.shape[1]
        dtype, count = numpy_dtype(x), math.prod(own.kernel)
        one, taps = op.constant(np.ones((1, 1, *own.kernel), dtype)), op.constant(np.array(count, dtype))
        filters = op.Expand(op.Div(one, taps), op.ints(channels, 1, *own.kernel))
        sums = op.Conv(x, filters, **{**own.attrs(), "group": channels})
        inside = self._inside(m, x)
        if m.attrs("pool").get("count_include_pad", 0) or (inside == count).all():
            return sums
        return op.Mul(sums, op.Div(taps, op.constant(inside.astype(dtype))))

    @staticmethod
    def _inside(m: Match, x: Ref) -> NDArray[np.int64]:
        """Return how many elements of each window lie in the image, int64 [1, 1, windows of each axis]."""
        own, found = geometry(m.node("pool"), x, m.attr("kernel")), np.ones((1, 1), np.int64)
        before, windows_of = own.pads[: len(own.kernel)], m.root().shape[2:]
        axes = zip(x.shape[2:], windows_of, own.kernel, own.strides, own.dilations, before, strict=True)
        for size, windows, kernel, stride, dilation, pad in axes:
            at = np.arange(windows)[:, None] * stride - pad + np.arange(kernel) * dilation
            found = found[..., None] * ((at >= 0) & (at < size)).sum(axis=1)
        return found


RULES = (
    GlobalAveragePoolToReduceMean, ReduceMeanToGlobalAveragePool, AveragePoolToGlobal, AveragePoolAsConv,
    ReluAfterMaxPool, ReluBeforeMaxPool, ConvOfSubsampling, SubsamplingOfSliceAsConv, SubsamplingOfTwoSlicesAsConv,
)  # fmt: skip
