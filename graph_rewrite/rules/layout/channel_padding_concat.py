"""Slices that keep the first channels, moved on past joins of channels, until a convolution takes them in."""

from __future__ import annotations

from typing import Any

from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat
from graph_rewrite.rules.helpers.constants import parts
from graph_rewrite.rules.helpers.elementwise import UNARY, apply_like
from graph_rewrite.rules.layout.channel_slices import first_channels, padded_constant, sliced_operand


class _Padding(Rule):
    family = "channel_padding"


class _OfConcat(_Padding):
    shared_interior = True

    def any_slice(self, m: Match, operands: tuple[Ref, ...]) -> Refusal | None:
        """Refuse a Concat along channels without an operand that is a Slice of first channels."""
        found = any(sliced_operand(m, operand) is not None for operand in operands)
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
        whole = [sliced_operand(m, operand) or operand for operand in operands]
        pieces = parts(op, w, [operand.shape[1] for operand in operands], axis=1)
        filters = [padded_constant(op, v, 1, x.shape[1] - v.shape[1]) for v, x in zip(pieces, whole, strict=True)]
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
            y = apply_like(op, m, "f", sliced_operand(m, operand) or operand, *rest)
            results.append(first_channels(op, y, operand.shape[1]))
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
            x = sliced_operand(m, operand) or operand
            more = x.shape[1] - operand.shape[1]
            bias = None if bias is None else padded_constant(op, bias, 0, more)
            attrs = {**m.attrs("conv"), "group": x.shape[1]}
            y = op.Conv(x, padded_constant(op, filters, 0, more), bias, **attrs)
            results.append(first_channels(op, y, operand.shape[1]))
        return op.Concat(*results, axis=1)


RULES = (ConvOfConcatOfChannelSlices, FunctionOfConcatOfChannelSlices, DepthwiseConvOfConcatOfChannelSlices)
