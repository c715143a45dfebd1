"""Channels padded to the block of ONNX Runtime's NCHWc layout, and carried on so.

Operators over other numbers of channels fall out of the blocked layout (pooling and depthwise convolutions, and what
stands between), which costs a reordering before and after. A convolution can compute a few channels more, from filters
of zeros; the Slice that removes them moves down past what works on each channel, until a convolution takes it into its
own filters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.convolution.winograd import BLOCK
from graph_rewrite.rules.helpers.axes import UNARY, apply_like, concat, ints, is_float, slice_ranges, take
from graph_rewrite.rules.helpers.operands import numpy_dtype, parts

SAFE_BINARY = frozenset({"Add", "Sub", "Mul", "Max", "Min"})
"""Operators that are finite wherever their operands are, so that the additional channels do no harm."""
_FURTHER = Refusal("the Slice does not keep the first channels, all of the rest")


class _Padding(Rule):
    family = "channel_padding"


class _AfterSlice(_Padding):
    """Of an operator on the first channels of x: `Slice` is labelled `slice`. Where others read them too, each can move
    its own Slice."""

    shared_interior = True

    def slice_of(self, m: Match, x: Ref, bounds: Sequence[Ref]) -> Refusal | None:
        return None if _keeps_first(m, m.value("slice"), x, bounds) else _FURTHER


def _keeps_first(m: Match, kept: Ref, x: Ref, bounds: Sequence[Ref]) -> bool:
    """Whether a Slice keeps channels 0, 1, ... of an image x, and all of the other axes."""
    if x.rank < 3 or len(bounds) < 2:
        return False
    ranges = slice_ranges(x, *(*bounds, None, None)[:4])  # type: ignore[arg-type]
    if isinstance(ranges, Refusal):
        return False
    whole = all(r == range(x.shape[axis]) for axis, r in ranges.items() if axis != 1)
    return whole and ranges.get(1) == range(kept.shape[1]) and kept.shape[1] > 0


def _first(op: ReplacementBuilder, x: Ref, channels: int) -> Ref:
    return take(op, x, {1: range(channels)})


def _padded(op: ReplacementBuilder, x: Ref, axis: int, more: int, value: float = 0.0) -> Ref:
    """A constant with `more` elements of `value` after its last along an axis."""
    if more == 0:
        return x
    after = [more if i == axis else 0 for i in range(x.rank)]
    filling = None if value == 0.0 else op.constant(np.array(value, dtype=numpy_dtype(x)))
    result: Ref = op.Pad(x, op.ints(*(0,) * x.rank, *after), filling)
    return result


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
        b = None if b is None else _padded(op, b, 0, more)
        return _first(op, op.Conv(x, _padded(op, w, 0, more), b, **m.attrs("conv")), w.shape[0])


class ChannelSliceAfterUnary(_AfterSlice):
    """f(Slice(x, first channels)) = Slice(f(x), first channels) for element-wise f"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values, rest: Values) -> Any:
        return op.any_of(UNARY - {"Reciprocal"})(op.Slice(x, bounds, _label="slice"), rest, _label="f")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        return _first(op, apply_like(op, m, "f", x, *rest), m.root().shape[1])


class ChannelSliceAfterPool(_AfterSlice):
    """f(Slice(x, first channels)) = Slice(f(x), first channels) for f in MaxPool, AveragePool, GlobalAveragePool,
    GlobalMaxPool"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values) -> Any:
        return op.any_of(POOLS)(op.Slice(x, bounds, _label="slice"), _label="f")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...]) -> Refusal | None:
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...]) -> Any:
        return _first(op, apply_like(op, m, "f", x), m.root().shape[1])


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
        return None if _keeps_first(m, left, x, s) and _keeps_first(m, right, y, t) else _FURTHER

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: tuple[Ref, ...], y: Ref, t: tuple[Ref, ...]) -> Any:
        return _first(op, apply_like(op, m, "f", x, y), m.root().shape[1])


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
        padded = [_padded(op, v, 0, more, float(i == 3)) for i, v in enumerate(statistics)]
        return _first(op, op.BatchNormalization(x, *padded, **m.attrs("norm")), m.root().shape[1])


class ConvOfChannelSlice(_AfterSlice):
    """Conv(Slice(x, first channels), w, b) = Conv(x, w with zeros for the other channels, b), w constant"""

    def source(self, op: PatternBuilder, x: Any, bounds: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Slice(x, bounds, _label="slice"), w, b, _label="conv")

    def check(self, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("group", 1) != 1:
            return Refusal("the convolution has groups")
        return self.slice_of(m, x, bounds)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, bounds: tuple[Ref, ...], w: Ref, b: Ref | None) -> Any:
        return op.Conv(x, _padded(op, w, 1, x.shape[1] - w.shape[1]), b, **m.attrs("conv"))


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
        b = None if b is None else _padded(op, b, 0, more)
        attrs = {**m.attrs("conv"), "group": x.shape[1]}
        return _first(op, op.Conv(x, _padded(op, w, 0, more), b, **attrs), w.shape[0])


class _OfConcat(_Padding):
    shared_interior = True

    def any_slice(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        """Why no operand of a Concat along channels is a Slice of first channels."""
        found = any(_whole(m, operand) is not None for operand in operands)
        return None if found else Refusal("no operand of the Concat is a Slice of first channels")


class ConvOfConcatOfChannelSlices(_OfConcat):
    """Conv(Concat(Slice(x, first channels), y, ...), w, b) = Conv(Concat(x, y, ...), w with zeros for the other
    channels, b), w constant"""

    def source(self, op: PatternBuilder, operands: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Concat(operands, axis=1, _label="concat"), w, b, _label="conv")

    def setting(self, op: PatternBuilder, x: Any, y: Any, bounds: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Concat(op.Slice(x, bounds), y, axis=1), w, b)

    def check(self, m: Match, operands: tuple[Ref, ...], w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("group", 1) != 1:
            return Refusal("the convolution has groups")
        return self.any_slice(m, operands)

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...], w: Ref, b: Ref | None) -> Any:
        whole = [_whole(m, operand) or operand for operand in operands]
        pieces = parts(op, w, [operand.shape[1] for operand in operands], axis=1)
        filters = [_padded(op, v, 1, x.shape[1] - v.shape[1]) for v, x in zip(pieces, whole, strict=True)]
        return op.Conv(op.Concat(*whole, axis=1), concat(op, filters, axis=1), b, **m.attrs("conv"))


class FunctionOfConcatOfChannelSlices(_OfConcat):
    """f(Concat(Slice(x, first channels), y, ...)) = Concat(Slice(f(x), first channels), f(y), ...) along channels, for
    element-wise f and MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool"""

    def source(self, op: PatternBuilder, operands: Values, rest: Values) -> Any:
        return op.any_of((UNARY - {"Reciprocal"}) | POOLS)(op.Concat(operands, axis=1), rest, _label="f")

    def setting(self, op: PatternBuilder, x: Any, y: Any, bounds: Values, rest: Values) -> Any:
        return op.any_of((UNARY - {"Reciprocal"}) | POOLS)(op.Concat(op.Slice(x, bounds), y, axis=1), rest)

    def check(self, m: Match, operands: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Refusal | None:
        return self.any_slice(m, operands)

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...], rest: tuple[Ref, ...]) -> Any:
        results = []
        for operand in operands:
            y = apply_like(op, m, "f", _whole(m, operand) or operand, *rest)
            results.append(_first(op, y, operand.shape[1]))
        return op.Concat(*results, axis=1)


class DepthwiseConvOfConcatOfChannelSlices(_OfConcat):
    """Conv(Concat(Slice(x, first channels), y, ...), w, b) = Concat(Slice(Conv(x, Pad(v), Pad(a)), first channels),
    Conv(y, u, c), ...), w = Concat(v, u, ...) and b = Concat(a, c, ...) constant, with one filter for every channel"""

    def source(self, op: PatternBuilder, operands: Values, w: Const, b: MaybeConst) -> Any:
        joined = op.Concat(operands, axis=1, _label="concat")
        return op.Conv(joined, w, b, group=op.attr("group", 1), _label="conv")

    def setting(self, op: PatternBuilder, x: Any, y: Any, bounds: Values, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Concat(op.Slice(x, bounds), y, axis=1), w, b, group=op.attr("group", 1))

    def check(self, m: Match, operands: tuple[Ref, ...], w: Ref, b: Ref | None) -> Refusal | None:
        if not m.attr("group") == w.shape[0] == m.value("concat").shape[1]:
            return Refusal("the convolution does not have one filter for every channel")
        return self.any_slice(m, operands)

    def target(self, op: ReplacementBuilder, m: Match, operands: tuple[Ref, ...], w: Ref, b: Ref | None) -> Any:
        widths = [operand.shape[1] for operand in operands]
        biases = [None] * len(widths) if b is None else parts(op, b, widths, axis=0)
        results = []
        for operand, filters, bias in zip(operands, parts(op, w, widths, axis=0), biases, strict=True):
            x = _whole(m, operand) or operand
            more = x.shape[1] - operand.shape[1]
            bias = None if bias is None else _padded(op, bias, 0, more)
            attrs = {**m.attrs("conv"), "group": x.shape[1]}
            y = op.Conv(x, _padded(op, filters, 0, more), bias, **attrs)
            results.append(_first(op, y, operand.shape[1]))
        return op.Concat(*results, axis=1)


def _whole(m: Match, kept: Ref) -> Ref | None:
    """What a value is the first channels of; None where it is not made by such a Slice."""
    node = m.producer(kept)
    if node is None or node.op != "Slice" or node.domain or any(v is None for v in node.inputs):
        return None
    values = [v for v in node.inputs if v is not None]
    if any(m.graph.types[v] is None for v in values):
        return None
    x, *bounds = (m.ref(v) for v in values)
    return x if _keeps_first(m, kept, x, bounds) else None


class PadIntoPool(_Padding):
    """AveragePool(Pad(x, zeros around spatial axes)) = AveragePool(x, pads, zeros counted)"""

    def source(self, op: PatternBuilder, x: Any, pads: Const, value: MaybeConst, axes: MaybeConst) -> Any:
        padded = op.Pad(x, pads, value, axes, mode="constant", _label="pad")
        return op.AveragePool(padded, kernel_shape=op.attr("kernel"), _label="pool")

    def check(self, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Refusal | None:
        if value is not None and (not is_float(value) or value.scalar() != 0.0):
            return Refusal("the padding is not zero")
        amounts, attrs = _spatial_pads(x, pads, axes), m.attrs("pool")
        if amounts is None or min(amounts) < 0:
            return Refusal("the padding is not of the spatial axes alone, or is negative")
        if any(attrs.get("pads", ())) or attrs.get("auto_pad", "NOTSET") != "NOTSET" or attrs.get("ceil_mode", 0):
            return Refusal("the pool pads or rounds up itself")
        if any(d != 1 for d in attrs.get("dilations", ())):
            return Refusal("the pool has dilations")
        kernel = (*m.attr("kernel"), *m.attr("kernel"))
        if any(amount >= k for amount, k in zip(amounts, kernel, strict=True)):
            return Refusal("the padding is as large as the window")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Any:
        return op.AveragePool(x, **{**m.attrs("pool"), "pads": _spatial_pads(x, pads, axes), "count_include_pad": 1})


def _spatial_pads(x: Ref, pads: Ref, axes: Ref | None) -> tuple[int, ...] | None:
    """The amounts of a Pad as attribute `pads` of a pool; None where unknown, or where other axes are padded."""
    amounts, named = ints(pads), range(x.rank) if axes is None else ints(axes)
    if amounts is None or named is None or x.rank < 3 or len(amounts) != 2 * len(named):
        return None
    found = [[0] * x.rank, [0] * x.rank]
    for i, axis in enumerate(named):
        found[0][axis % x.rank], found[1][axis % x.rank] = amounts[i], amounts[len(named) + i]
    return None if any((*found[0][:2], *found[1][:2])) else (*found[0][2:], *found[1][2:])


RULES = (
    PadConvChannels, ChannelSliceAfterUnary, ChannelSliceAfterPool, ChannelSlicesAfterBinary,
    ChannelSliceAfterBatchNorm, ConvOfChannelSlice, DepthwiseConvOfChannelSlice, ConvOfConcatOfChannelSlices,
    FunctionOfConcatOfChannelSlices, DepthwiseConvOfConcatOfChannelSlices, PadIntoPool,
)  # fmt: skip
