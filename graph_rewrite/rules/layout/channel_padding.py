"""Channels padded to the block of ONNX Runtime's NCHWc layout, and carried on so.

Operators over other numbers of channels fall out of the blocked layout: pooling, depthwise convolutions, and what
stands between. That costs a reordering before and after. A convolution can compute a few channels more, from filters of
zeros. The Slice that removes them moves down past what works on each channel, until a convolution takes it into its own
filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.blocks import BLOCK
from graph_rewrite.rules.helpers.elementwise import UNARY, apply_like
from graph_rewrite.rules.layout.channel_slices import (
    KEEPS_OTHER_CHANNELS,
    first_channels,
    keeps_first_channels,
    padded_constant,
)

SAFE_BINARY = frozenset({"Add", "Sub", "Mul", "Max", "Min"})
"""Operators that are finite wherever their operands are, so that the additional channels do no harm."""


class _Padding(Rule):
    family = "channel_padding"


class _AfterSlice(_Padding):
    """A rule of an operator on the first channels of x: `Slice` is labelled `slice`. Where other operators read the
    same channels, each can move its own Slice."""

    shared_interior = True

    def slice_of(self, m: Match, x: Ref, bounds: Sequence[Ref]) -> Refusal | None:
        return None if keeps_first_channels(m, m.value("slice"), x, bounds) else KEEPS_OTHER_CHANNELS


class PadConvChannels(_Padding):
    """Conv(x, w, b) = Slice(Conv(x, Pad(w), Pad(b)), first channels), w and b constant, padded with zeros to a multiple
    of 16 filters"""

    carried_by = (
        "ChannelSliceAfterUnary", "ChannelSliceAfterPool", "ChannelSlicesAfterBinary", "ChannelSliceAfterBatchNorm",
        "ConvOfChannelSlice", "DepthwiseConvOfChannelSlice", "ConvOfConcatOfChannelSlices",
        "FunctionOfConcatOfChannelSlices", "DepthwiseConvOfConcatOfChannelSlices",
    )  # fmt: skip

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("group", 1) != 1:
            return Refusal("the convolution has groups")
        if w.shape[0] % BLOCK == 0:
            return Refusal(f"the filters fill blocks of {BLOCK}")
        return Refusal("padding would more than double the filters") if w.shape[0] * 2 < BLOCK else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        more = -w.shape[0] % BLOCK
        b = None if b is None else padded_constant(op, b, 0, more)
        return first_channels(op, op.Conv(x, padded_constant(op, w, 0, more), b, **m.attrs("conv")), w.shape[0])


class ChannelSliceAfterUnary(_AfterSlice):
    """f(Slice(x, first channels)) = Slice(f(x), first channels) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values, rest: Values) -> Any:
        return op.any_of(UNARY - {"Reciprocal"})(op.Slice(x, bounds, _label="slice"), rest, _label="f")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return first_channels(op, apply_like(op, m, "f", x, *rest), m.root().shape[1])


class ChannelSliceAfterPool(_AfterSlice):
    """f(Slice(x, first channels)) = Slice(f(x), first channels) for f in MaxPool, AveragePool, GlobalAveragePool,
    GlobalMaxPool"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values) -> Any:
        return op.any_of(POOLS)(op.Slice(x, bounds, _label="slice"), _label="f")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...]) -> Refusal | None:
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...]) -> Any:
        return first_channels(op, apply_like(op, m, "f", x), m.root().shape[1])


class ChannelSlicesAfterBinary(_Padding):
    """f(Slice(x, first channels), Slice(y, first channels)) = Slice(f(x, y), first channels) for f in Add, Sub, Mul,
    Max, Min and x, y of one shape"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any, s: Values, y: Any, t: Values) -> Any:
        return op.any_of(SAFE_BINARY)(op.Slice(x, s, _label="left"), op.Slice(y, t, _label="right"), _label="f")

    def check(self, m: Match, x: Ref, s: tuple[Ref, ...], y: Ref, t: tuple[Ref, ...]) -> Refusal | None:
        left, right = m.value("left"), m.value("right")
        if x.shape != y.shape or left.shape != right.shape:
            return Refusal("the operands differ in shape")
        kept = keeps_first_channels(m, left, x, s) and keeps_first_channels(m, right, y, t)
        return None if kept else KEEPS_OTHER_CHANNELS

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: tuple[Ref, ...], y: Ref, t: tuple[Ref, ...]) -> Any:
        return first_channels(op, apply_like(op, m, "f", x, y), m.root().shape[1])


class ChannelSliceAfterBatchNorm(_AfterSlice):
    """BatchNormalization(Slice(x, first channels), s, b, m, v) = Slice(BatchNormalization(x, padded s, b, m, v)), with
    the variance padded with ones"""

    def source(
        self, op: PatternBuilder, x: Any, bounds: Values, scale: Const, bias: Const, mean: Const, var: Const
    ) -> Any:
        first = op.Slice(x, bounds, _label="slice")
        return op.BatchNormalization(first, scale, bias, mean, var, training_mode=0, _label="norm")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], *statistics: Ref) -> Refusal | None:
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], *statistics: Ref) -> Any:
        more = x.shape[1] - m.root().shape[1]
        padded = [padded_constant(op, v, 0, more, float(i == 3)) for i, v in enumerate(statistics)]
        return first_channels(op, op.BatchNormalization(x, *padded, **m.attrs("norm")), m.root().shape[1])


class ConvOfChannelSlice(_AfterSlice):
    """Conv(Slice(x, first channels), w, b) = Conv(x, w with zeros for the other channels, b), w constant"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Slice(x, bounds, _label="slice"), w, b, _label="conv")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("group", 1) != 1:
            return Refusal("the convolution has groups")
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Any:
        return op.Conv(x, padded_constant(op, w, 1, x.shape[1] - w.shape[1]), b, **m.attrs("conv"))


class DepthwiseConvOfChannelSlice(_AfterSlice):
    """Conv(Slice(x, first channels), w, b) = Slice(Conv(x, Pad(w), Pad(b)), first channels), w and b constant, with one
    filter for every channel"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Slice(x, bounds, _label="slice"), w, b, group=op.attr("group", 1), _label="conv")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Refusal | None:
        if not m.attr("group") == w.shape[0] == m.value("slice").shape[1]:
            return Refusal("the convolution does not have one filter for every channel")
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Any:
        more = x.shape[1] - w.shape[0]
        b = None if b is None else padded_constant(op, b, 0, more)
        attrs = {**m.attrs("conv"), "group": x.shape[1]}
        return first_channels(op, op.Conv(x, padded_constant(op, w, 0, more), b, **attrs), w.shape[0])


RULES = (
    PadConvChannels, ChannelSliceAfterUnary, ChannelSliceAfterPool, ChannelSlicesAfterBinary,
    ChannelSliceAfterBatchNorm, ConvOfChannelSlice, DepthwiseConvOfChannelSlice,
)  # fmt: skip
