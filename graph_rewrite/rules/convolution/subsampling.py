"""Pools of one element per window as strides of a convolution.

Such a pool takes every s-th position, from the first or, behind a Slice, from a later one on: the two halves of a
factorised reduction (Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition", appendix A.1).
Strides of a convolution do the same. A Slice along rows or columns leaves ONNX Runtime's blocked layout; a depthwise
convolution with a one among zeros stays in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.element_types import numpy_dtype
from graph_rewrite.rules.helpers.geometry import conv_geometry, geometry
from graph_rewrite.rules.helpers.slices import slice_ranges


class _Subsampling(Rule):
    family = "pooling"


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


class ConvOfSubsampling(_Subsampling):
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


class _SubsamplingOfSlice(_Subsampling):
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


RULES = (ConvOfSubsampling, SubsamplingOfSliceAsConv, SubsamplingOfTwoSlicesAsConv)
