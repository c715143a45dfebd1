"""Parallel convolutions: several on one input become one and a Split, sums and concatenations move in and out,
kernels grow to those beside them, groups merge."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import split
from graph_rewrite.rules.helpers.constants import parts
from graph_rewrite.rules.helpers.element_types import numpy_dtype
from graph_rewrite.rules.helpers.geometry import Geometry, conv_geometry, joint_bias
from graph_rewrite.rules.helpers.operands import ordered


class _Parallel(Rule):
    family = "convolution"


def _different(m: Match, x: Ref, filters: Sequence[Ref]) -> Refusal | None:
    """Refuse convolutions labelled conv0, conv1, ... of one input that cannot run as one."""
    found = [conv_geometry(m.node(f"conv{i}"), x, w) for i, w in enumerate(filters)]
    if any(own != found[0] for own in found):
        return Refusal("the convolutions differ in kernel, strides, dilations, pads or groups")
    return Refusal("the convolutions have groups") if found[0].group != 1 else None


def _merged(
    op: ReplacementBuilder, m: Match, x: Ref, filters: Sequence[Ref], biases: Sequence[Ref | None]
) -> tuple[Ref, ...]:
    sizes = [w.shape[0] for w in filters]
    bias = None
    if any(b is not None for b in biases):
        dtype = numpy_dtype(x)
        known = [op.constant(np.zeros(n, dtype)) if b is None else b for b, n in zip(biases, sizes, strict=True)]
        bias = op.Concat(*known, axis=0)
    return split(op, op.Conv(x, op.Concat(*filters, axis=0), bias, **m.attrs("conv0")), sizes, axis=1)


class MergeTwoConvs(_Parallel):
    """Conv(x, w1, b1), Conv(x, w2, b2) = Split(Conv(x, Concat(w1, w2), Concat(b1, b2))), filters and biases constant"""

    symmetric = True

    def source(self, op: PatternBuilder, x: Any, w1: Const, w2: Const, b1: MaybeConst, b2: MaybeConst) -> Any:
        return op.Conv(x, w1, b1, _label="conv0"), op.Conv(x, w2, b2, _label="conv1")

    def check(self, m: Match, x: Ref, w1: Ref, w2: Ref, b1: Ref | None, b2: Ref | None) -> Refusal | None:
        return _different(m, x, (w1, w2))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w1: Ref, w2: Ref, b1: Ref | None, b2: Ref | None) -> Any:
        return _merged(op, m, x, (w1, w2), (b1, b2))


class MergeThreeConvs(_Parallel):
    """Conv(x, w1, b1), Conv(x, w2, b2), Conv(x, w3, b3) =
    Split(Conv(x, Concat(w1, w2, w3), Concat(b1, b2, b3))), filters and biases constant"""

    symmetric = True

    def source(
        self, op: PatternBuilder, x: Any, w1: Const, w2: Const, w3: Const, b1: MaybeConst, b2: MaybeConst,
        b3: MaybeConst,
    ) -> Any:  # fmt: skip
        return (
            op.Conv(x, w1, b1, _label="conv0"), op.Conv(x, w2, b2, _label="conv1"), op.Conv(x, w3, b3, _label="conv2"),
        )  # fmt: skip

    def check(self, m: Match, x: Ref, *operands: Any) -> Refusal | None:
        return _different(m, x, operands[:3])

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *operands: Any) -> Any:
        return _merged(op, m, x, operands[:3], operands[3:])


class _SeparateConvs(_Parallel):
    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, sizes: Ref | None) -> Refusal | None:
        if m.attr("axis") % m.root().rank != 1:
            return Refusal("the Split is not along channels")
        return Refusal("the convolution has groups") if m.attrs("conv").get("group", 1) != 1 else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, sizes: Ref | None) -> Any:
        channels = [m.root(i).shape[1] for i in range(len(m.root_values))]
        filters = parts(op, w, channels, axis=0)
        biases = [None] * len(channels) if b is None else parts(op, b, channels, axis=0)
        attrs = m.attrs("conv")
        return tuple(op.Conv(x, v, a, **attrs) for v, a in zip(filters, biases, strict=True))


class SeparateTwoConvs(_SeparateConvs):
    """Split(Conv(x, Concat(w1, w2), Concat(b1, b2))) = Conv(x, w1, b1), Conv(x, w2, b2), filters and biases constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, sizes: Maybe) -> Any:
        return op.Split(op.Conv(x, w, b, _label="conv"), sizes, axis=op.attr("axis", 0), _outputs=2)


class SeparateThreeConvs(_SeparateConvs):
    """Split(Conv(x, Concat(w1, w2, w3), Concat(b1, b2, b3))) =
    Conv(x, w1, b1), Conv(x, w2, b2), Conv(x, w3, b3), filters and biases constant"""

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, sizes: Maybe) -> Any:
        return op.Split(op.Conv(x, w, b, _label="conv"), sizes, axis=op.attr("axis", 0), _outputs=3)


class EnlargeKernel(_Parallel):
    """Conv(x, w, b, pads) = Conv(x, Pad(w), b, larger pads), to the kernel of another Conv of x

    Zeros around the filters change nothing but make room: then both can be merged. The other convolution is the one
    with the smallest larger kernel, strides and dilations alike, so that the rule applies at most once per kernel.
    """

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def setting(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, v: Const) -> Any:
        return op.Conv(x, w, b), op.Conv(x, v)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("group", 1) != 1:
            return Refusal("the convolution has groups")
        if _larger_neighbours(m, x, w):
            return None
        return Refusal("no convolution of this input has a larger kernel that fits")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own = conv_geometry(m.node("conv"), x, w)
        goal = min(_larger_neighbours(m, x, w), key=lambda g: (np.prod(g.kernel), g.kernel, g.pads))
        before, after = _margins(own, goal)
        padded = op.Pad(w, op.ints(0, 0, *before, 0, 0, *after))
        return op.Conv(x, padded, b, **goal.attrs())


def _larger_neighbours(m: Match, x: Ref, w: Ref) -> list[Geometry]:
    own = conv_geometry(m.node("conv"), x, w)
    found = []
    for node in m.consumers(x):
        if node.op == "Conv" and not node.domain and node.inputs[0] == x.external and node.inputs[1] is not None:
            type = m.graph.types[node.inputs[1]]
            if type is not None:
                goal = conv_geometry(node, x, Ref(type))
                if goal.kernel != own.kernel and goal.group == 1 and _fits(own, goal):
                    found.append(goal)
    return found


def _margins(own: Geometry, goal: Geometry) -> tuple[list[int], list[int]]:
    """Return the taps to add before and after, per spatial axis, to make the pads those of `goal`."""
    count = len(own.kernel)
    before = [(goal.pads[i] - own.pads[i]) // goal.dilations[i] for i in range(count)]
    after = [goal.kernel[i] - own.kernel[i] - before[i] for i in range(count)]
    return before, after


def _fits(own: Geometry, goal: Geometry) -> bool:
    if own.strides != goal.strides:
        return False
    before, after = _margins(own, goal)
    for i, (first, last) in enumerate(zip(before, after, strict=True)):
        dilation = goal.dilations[i]
        if own.kernel[i] > 1 and own.dilations[i] != dilation:
            return False
        end = i + len(before)
        if min(first, last) < 0 or own.pads[i] + first * dilation != goal.pads[i]:
            return False
        if own.pads[end] + last * dilation != goal.pads[end]:
            return False
    return True


class ConvOfConcat(_Parallel):
    """Conv(Concat(x, y, ..., axis of channels), w, b) = Add(Conv(x, v, b), Conv(y, u)), ..., w = Concat(v, u, ...)
    constant"""

    def source(self, op: PatternBuilder, w: Const, b: MaybeConst, operands: Values) -> Any:
        return op.Conv(op.Concat(operands, axis=op.attr("axis")), w, b, _label="conv")

    def check(self, m: Match, w: Ref, b: Ref | None, operands: tuple[Ref, ...]) -> Refusal | None:
        if m.attr("axis") % w.rank != 1 or len(operands) < 2:
            return Refusal("the concatenation is not along channels")
        return Refusal("the convolution has groups") if m.attrs("conv").get("group", 1) != 1 else None

    def target(self, op: ReplacementBuilder, m: Match, w: Ref, b: Ref | None, operands: tuple[Ref, ...]) -> Any:
        filters = parts(op, w, [operand.shape[1] for operand in operands], axis=1)
        attrs = m.attrs("conv")
        total = op.Conv(operands[0], filters[0], b, **attrs)
        for operand, part in zip(operands[1:], filters[1:], strict=True):
            total = op.Add(total, op.Conv(operand, part, **attrs))
        return total


class SumOfConvs(_Parallel):
    """Add(Conv(x, v, a), Conv(y, w, b)) = Conv(Concat(x, y, axis of channels), Concat(v, w), a + b), filters and biases
    constant"""

    def source(self, op: PatternBuilder, x: Any, y: Any, v: Const, w: Const, a: MaybeConst, b: MaybeConst) -> Any:
        return op.Add(op.Conv(x, v, a, _label="conv0"), op.Conv(y, w, b, _label="conv1"))

    def check(self, m: Match, x: Ref, y: Ref, v: Ref, w: Ref, a: Ref | None, b: Ref | None) -> Refusal | None:
        if x.external == y.external or x.is_const or y.is_const:
            return Refusal("the inputs are constant or the same")
        if (x.shape[0], *x.shape[2:]) != (y.shape[0], *y.shape[2:]) or v.shape[0] != w.shape[0]:
            return Refusal("the inputs differ in more than their channels, or the outputs are broadcast")
        first = conv_geometry(m.node("conv0"), x, v)
        if first != conv_geometry(m.node("conv1"), y, w):
            return Refusal("the convolutions differ in kernel, strides, dilations, pads or groups")
        return Refusal("the convolutions have groups") if first.group != 1 else None

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, v: Ref, w: Ref, a: Ref | None, b: Ref | None
    ) -> Any:
        label = "conv0"
        if not ordered(x, y):
            x, y, v, w, a, b, label = y, x, w, v, b, a, "conv1"
        return op.Conv(op.Concat(x, y, axis=1), op.Concat(v, w, axis=1), joint_bias(op, a, b), **m.attrs(label))


class SumOfConvsOfOneInput(_Parallel):
    """Add(Conv(x, v, a), Conv(x, w, b)) = Conv(x, v + w, a + b), filters and biases constant"""

    def source(self, op: PatternBuilder, x: Any, v: Const, w: Const, a: MaybeConst, b: MaybeConst) -> Any:
        return op.Add(op.Conv(x, v, a, _label="conv0"), op.Conv(x, w, b, _label="conv1"))

    def check(self, m: Match, x: Ref, v: Ref, w: Ref, a: Ref | None, b: Ref | None) -> Refusal | None:
        if v.shape != w.shape or conv_geometry(m.node("conv0"), x, v) != conv_geometry(m.node("conv1"), x, w):
            return Refusal("the convolutions differ in filters, strides, dilations, pads or groups")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, w: Ref, a: Ref | None, b: Ref | None) -> Any:
        label = "conv0"
        if not ordered(v, w):
            v, w, a, b, label = w, v, b, a, "conv1"
        return op.Conv(x, op.Add(v, w), joint_bias(op, a, b), **m.attrs(label))


RULES = (
    MergeTwoConvs, MergeThreeConvs, SeparateTwoConvs, SeparateThreeConvs, EnlargeKernel, ConvOfConcat, SumOfConvs,
    SumOfConvsOfOneInput,
)  # fmt: skip
