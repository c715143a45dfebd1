"""Convolutions that absorb their neighbours: padding, another convolution, a residual connection, a stride's Slice."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import ints, uniform
from graph_rewrite.rules.helpers.element_types import numpy_dtype
from graph_rewrite.rules.helpers.geometry import Geometry, conv_geometry, joint_bias, response_to
from graph_rewrite.rules.helpers.slices import slice_ranges, take


class _Chain(Rule):
    family = "convolution"


class FoldPadIntoConv(_Chain):
    """Conv(Pad(x, zeros around spatial axes), w, b) = Conv(x, w, b, larger pads)"""

    def source(
        self, op: PatternBuilder, x: Any, pads: Const, value: MaybeConst, axes: MaybeConst, w: Any, b: MaybeConst
    ) -> Any:
        return op.Conv(op.Pad(x, pads, value, axes, mode="constant", _label="pad"), w, b, _label="conv")

    def check(
        self, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None, w: Ref, b: Ref | None
    ) -> Refusal | None:
        if value is not None and uniform(value) != 0.0:
            return Refusal("the padding is not zero")
        amounts = _pad_amounts(x, pads, axes)
        if amounts is None:
            return Refusal("the amounts of padding are not constant")
        if any(amounts[0]) or any(amounts[1]):
            return Refusal("batch or channels are padded")
        return Refusal("the padding is negative") if any(min(pair) < 0 for pair in amounts) else None

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None, w: Ref,
        b: Ref | None,
    ) -> Any:  # fmt: skip
        own = conv_geometry(m.node("conv"), m.value("pad"), w)
        amounts = (_pad_amounts(x, pads, axes) or [])[2:]
        before, after = zip(*amounts, strict=True)
        joint = tuple(p + q for p, q in zip(own.pads, (*before, *after), strict=True))
        return op.Conv(x, w, b, **{**own.attrs(), "pads": joint})


def _pad_amounts(x: Ref, pads: Ref, axes: Ref | None) -> list[tuple[int, int]] | None:
    """Return (before, after) per axis of `x`; None where they are not known."""
    values = ints(pads)
    named = tuple(range(x.rank)) if axes is None else ints(axes)
    if values is None or named is None:
        return None
    amounts = [(0, 0)] * x.rank
    for i, axis in enumerate(named):
        amounts[axis % x.rank] = (values[i], values[i + len(named)])
    return amounts


def _inflated(size: int, first: Ref, second: Ref) -> Refusal | None:
    both = first.type.size + second.type.size
    if size > both:
        return Refusal(f"the filters of the product have {size} elements, those of the factors {both}")
    return None


class ComposeConvThenPointwise(_Chain):
    """Conv(Conv(x, v, a), w, b) = Conv(x, w · v, w · a + b), the outer filters w 1x1, all filters constant

    Only where the product has no more elements than both factors, and without groups.
    """

    def source(self, op: PatternBuilder, x: Any, v: Const, a: MaybeConst, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Conv(x, v, a, _label="inner"), w, b, _label="outer")

    def check(self, m: Match, x: Ref, v: Ref, a: Ref | None, w: Ref, b: Ref | None) -> Refusal | None:
        inner, outer = _geometries(m, x, v, w)
        if not outer.is_pointwise or (inner.group, outer.group) != (1, 1):
            return Refusal("the outer convolution is not pointwise, or there are groups")
        return _inflated(w.shape[0] * (v.type.size // v.shape[0]), v, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref | None, w: Ref, b: Ref | None) -> Any:
        inner, outer = _geometries(m, x, v, w)
        mixing = reshape(op, w, w.shape[:2])
        product = op.MatMul(mixing, reshape(op, v, (v.shape[0], v.type.size // v.shape[0])))
        filters = reshape(op, product, (w.shape[0], *v.shape[1:]))
        bias = joint_bias(op, b, None if a is None else op.MatMul(mixing, a))
        strides = tuple(s * t for s, t in zip(inner.strides, outer.strides, strict=True))
        return op.Conv(x, filters, bias, **{**inner.attrs(), "strides": strides})


def _geometries(m: Match, x: Ref, v: Ref, w: Ref) -> tuple[Geometry, Geometry]:
    return conv_geometry(m.node("inner"), x, v), conv_geometry(m.node("outer"), m.value("inner"), w)


class ComposePointwiseThenConv(_Chain):
    """Conv(Conv(x, v, a), w, b) = Conv(x, w · v, b + Conv(a, w)), the inner filters v 1x1, all filters constant

    Only where the product has no more elements than both factors, without groups, and without padding of the outer
    convolution where the inner one has a bias.
    """

    def source(self, op: PatternBuilder, x: Any, v: Const, a: MaybeConst, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Conv(x, v, a, _label="inner"), w, b, _label="outer")

    def check(self, m: Match, x: Ref, v: Ref, a: Ref | None, w: Ref, b: Ref | None) -> Refusal | None:
        inner, outer = _geometries(m, x, v, w)
        if not inner.is_dense_pointwise or outer.group != 1:
            return Refusal("the inner convolution is not pointwise with stride 1, or there are groups")
        if a is not None and not outer.is_unpadded:
            return Refusal("the outer convolution pads with zeros, where the inner one would give its bias")
        return _inflated(w.type.size // w.shape[1] * v.shape[1], v, w)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref | None, w: Ref, b: Ref | None) -> Any:
        outer = _geometries(m, x, v, w)[1]
        taps = w.type.size // (w.shape[0] * w.shape[1])
        mixing = op.Transpose(reshape(op, v, v.shape[:2]), perm=(1, 0))
        product = op.MatMul(mixing, reshape(op, w, (w.shape[0], w.shape[1], taps)))
        filters = reshape(op, product, (w.shape[0], v.shape[1], *w.shape[2:]))
        bias = joint_bias(op, b, None if a is None else response_to(op, w, a, group=1))
        return op.Conv(x, filters, bias, **outer.attrs())


class FoldResidualIntoConv(_Chain):
    """Add(Conv(x, w, b), x) = Conv(x, w + identity filters, b), w constant

    The identity filters are 1 at the tap over the output's own position and channel (RepVGG, Ding et al. 2021,
    section 3.3).
    """

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Add(op.Conv(x, w, b, _label="conv"), x)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        own = conv_geometry(m.node("conv"), x, w)
        if not own.is_unstrided or m.value("conv").shape != x.shape:
            return Refusal("the convolution does not keep the shape of its input")
        if any(pad % dilation for pad, dilation in zip(own.pads, own.dilations, strict=False)):
            return Refusal("no tap of the filters lies over the output's position")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own = conv_geometry(m.node("conv"), x, w)
        before = [pad // dilation for pad, dilation in zip(own.pads, own.dilations, strict=False)]
        after = [kernel - 1 - tap for kernel, tap in zip(own.kernel, before, strict=True)]
        identity = np.tile(np.eye(w.shape[1], dtype=numpy_dtype(w)), (own.group, 1))
        taps = reshape(op, op.constant(identity), (*w.shape[:2], *(1,) * len(before)))
        padded = op.Pad(taps, op.ints(0, 0, *before, 0, 0, *after)) if any((*before, *after)) else taps
        return op.Conv(x, op.Add(w, padded), b, **m.attrs("conv"))


class StridedPointwiseConvToSlice(_Chain):
    """Conv(x, w, b, strides s) = Conv(Slice(x, steps s), w, b), w 1x1 without padding"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        own = conv_geometry(m.node("conv"), x, w)
        if own.is_pointwise and not own.is_unstrided:
            return None
        return Refusal("not a pointwise convolution with a stride")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own = conv_geometry(m.node("conv"), x, w)
        ranges = {axis + 2: range(0, x.shape[axis + 2], stride) for axis, stride in enumerate(own.strides)}
        return op.Conv(take(op, x, ranges), w, b, **{**own.attrs(), "strides": (1,) * len(own.strides)})


class SliceToStridedPointwiseConv(_Chain):
    """Conv(Slice(x, steps s), w, b) = Conv(x, w, b, strides s), w 1x1 with stride 1 and without padding"""

    def source(
        self, op: PatternBuilder, x: Any, starts: Const, ends: Const, axes: MaybeConst, steps: MaybeConst, w: Any,
        b: MaybeConst,
    ) -> Any:  # fmt: skip
        return op.Conv(op.Slice(x, starts, ends, axes, steps, _label="slice"), w, b, _label="conv")

    def check(
        self, m: Match, x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None, w: Ref, b: Ref | None
    ) -> Refusal | None:
        own = conv_geometry(m.node("conv"), m.value("slice"), w)
        if not own.is_pointwise or not own.is_unstrided:
            return Refusal("the convolution is not pointwise with stride 1")
        ranges = slice_ranges(x, starts, ends, axes, steps)
        if isinstance(ranges, Refusal):
            return ranges
        regular = all(axis > 1 and r == range(0, x.shape[axis], r.step) for axis, r in ranges.items())
        return None if regular else Refusal("the Slice does more than take every s-th position")

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, starts: Ref, ends: Ref, axes: Ref | None, steps: Ref | None,
        w: Ref, b: Ref | None,
    ) -> Any:  # fmt: skip
        own = conv_geometry(m.node("conv"), m.value("slice"), w)
        ranges = slice_ranges(x, starts, ends, axes, steps)
        if isinstance(ranges, Refusal):
            return ranges
        strides = tuple(ranges[axis].step if axis in ranges else 1 for axis in range(2, x.rank))
        return op.Conv(x, w, b, **{**own.attrs(), "strides": strides})


RULES = (
    FoldPadIntoConv, ComposeConvThenPointwise, ComposePointwiseThenConv, FoldResidualIntoConv,
    StridedPointwiseConvToSlice, SliceToStridedPointwiseConv,
)  # fmt: skip
