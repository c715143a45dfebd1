"""Operators around a convolution, absorbed into its constant filters and bias: BatchNormalization, scales, shifts,
padding, a pointwise convolution, a residual connection.

Only scales can move behind a padded convolution: the zeros of the border stay zeros under a scale, not under a shift.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import as_scale, as_vector, finite_reciprocal, parts, varies_along
from graph_rewrite.rules.helpers.element_types import is_float, numpy_dtype
from graph_rewrite.rules.helpers.geometry import (
    conv_geometry,
    joint_bias,
    normalisation,
    per_filter,
    response_to,
    times_input_channels,
)


class _Convolution(Rule):
    family = "convolution"


_PADDED = Refusal("the convolution pads its input with zeros, which the shift would change")


def _normalised(
    op: ReplacementBuilder, x: Ref, w: Ref, b: Ref | None, factor: Ref, shift: Ref, attrs: Mapping[str, Any]
) -> Ref:
    """Return Conv(x, w, b) * factor + shift, both per filter, as one convolution."""
    b = None if b is None else op.Mul(b, factor)
    result: Ref = op.Conv(x, op.Mul(w, per_filter(op, factor, w)), joint_bias(op, b, shift), **attrs)
    return result


class FoldBatchNormAfterConv(_Convolution):
    """BatchNormalization(Conv(x, w, b)) = Conv(x, w * factor, b * factor + shift), all but x constant"""

    def source(
        self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, scale: Const, bias: Const, mean: Const, var: Const
    ) -> Any:
        y = op.Conv(x, w, b, _label="conv")
        return op.BatchNormalization(y, scale, bias, mean, var, epsilon=op.attr("epsilon", 1e-5), training_mode=0)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, *statistics: Ref) -> Any:
        scale, bias, mean, var = statistics
        factor, shift = normalisation(op, scale, bias, mean, var, m.attr("epsilon"))
        return _normalised(op, x, w, b, factor, shift, m.attrs("conv"))


class FoldBatchNormAfterTwoConvs(_Convolution):
    """BatchNormalization(Concat(Conv(x, w, b), Conv(y, v, c))) = Concat(Conv(x, w * factor, b * factor + shift),
    Conv(y, v * factor, c * factor + shift)), along channels, all but x and y constant"""

    def source(
        self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, y: Any, v: Const, c: MaybeConst, scale: Const,
        bias: Const, mean: Const, var: Const,
    ) -> Any:  # fmt: skip
        convs = (op.Conv(x, w, b, _label="first"), op.Conv(y, v, c, _label="second"))
        joined = op.Concat(*convs, axis=1)
        return op.BatchNormalization(joined, scale, bias, mean, var, epsilon=op.attr("epsilon", 1e-5), training_mode=0)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, y: Ref, v: Ref, c: Ref | None,
        *statistics: Ref,
    ) -> Any:  # fmt: skip
        scale, bias, mean, var = statistics
        factors, shifts = (
            parts(op, vector, (w.shape[0], v.shape[0]), 0)
            for vector in normalisation(op, scale, bias, mean, var, m.attr("epsilon"))
        )
        first = _normalised(op, x, w, b, factors[0], shifts[0], m.attrs("first"))
        second = _normalised(op, y, v, c, factors[1], shifts[1], m.attrs("second"))
        return op.Concat(first, second, axis=1)


class FoldBatchNormBeforeConv(_Convolution):
    """Conv(BatchNormalization(x), w, b) = Conv(x, w * factor, b + Conv(shift, w)), all but x constant, without
    padding"""

    def source(
        self, op: PatternBuilder, x: Any, scale: Const, bias: Const, mean: Const, var: Const, w: Const, b: MaybeConst
    ) -> Any:
        epsilon = op.attr("epsilon", 1e-5)
        normal = op.BatchNormalization(x, scale, bias, mean, var, epsilon=epsilon, training_mode=0)
        return op.Conv(normal, w, b, _label="conv")

    def check(
        self, m: Match, x: Ref, scale: Ref, bias: Ref, mean: Ref, var: Ref, w: Ref, b: Ref | None
    ) -> Refusal | None:
        return None if conv_geometry(m.node("conv"), x, w).is_unpadded else _PADDED

    def target(
        self,
        op: ReplacementBuilder,
        m: Match,
        x: Ref,
        scale: Ref,
        bias: Ref,
        mean: Ref,
        var: Ref,
        w: Ref,
        b: Ref | None,
    ) -> Any:
        factor, shift = normalisation(op, scale, bias, mean, var, m.attr("epsilon"))
        group = m.attrs("conv").get("group", 1)
        b = joint_bias(op, b, response_to(op, w, shift, group))
        return op.Conv(x, times_input_channels(op, w, factor, group), b, **m.attrs("conv"))


class BatchNormToMulAdd(_Convolution):
    """BatchNormalization(x) = Add(Mul(x, factor), shift), all but x constant"""

    def source(self, op: PatternBuilder, x: Any, scale: Const, bias: Const, mean: Const, var: Const) -> Any:
        epsilon = op.attr("epsilon", 1e-5)
        return op.BatchNormalization(x, scale, bias, mean, var, epsilon=epsilon, training_mode=0)

    def check(self, m: Match, x: Ref, *statistics: Ref) -> Refusal | None:
        return Refusal("the input has no channels") if x.rank < 2 else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *statistics: Ref) -> Any:
        scale, bias, mean, var = statistics
        factor, shift = normalisation(op, scale, bias, mean, var, m.attr("epsilon"))
        shape = (x.shape[1], *(1,) * (x.rank - 2))
        return op.Add(op.Mul(x, reshape(op, factor, shape)), reshape(op, shift, shape))


class MulAddToBatchNorm(_Convolution):
    """Add(Mul(x, s), c) = BatchNormalization(x, s, c, mean 0, variance 1, epsilon 0), s and c constant per channel"""

    def source(self, op: PatternBuilder, x: Any, s: Const, c: Const) -> Any:
        return op.Add(op.Mul(x, s), c)

    def check(self, m: Match, x: Ref, s: Ref, c: Ref) -> Refusal | None:
        if x.rank < 3 or not is_float(x):
            return Refusal("the input is not an image of floating-point numbers")
        if s.type.size != x.shape[1] or c.type.size != x.shape[1]:
            return Refusal("scale and shift are not given per channel")
        return _per_channel(x, s) or _per_channel(x, c)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, c: Ref) -> Any:
        channels = x.shape[1]
        zeros = op.constant(np.zeros(channels, dtype=numpy_dtype(x)))
        ones = op.constant(np.ones(channels, dtype=numpy_dtype(x)))
        s, c = as_vector(op, s, channels), as_vector(op, c, channels)
        return op.BatchNormalization(x, s, c, zeros, ones, epsilon=0.0)


def _per_channel(x: Ref, constant: Ref) -> Refusal | None:
    """Refuse a `constant` that, combined with an image `x`, varies along more than its channels."""
    if varies_along(constant, x.rank - 1, x.shape[1]):
        return None
    return Refusal("the constant varies along more than the channels")


class FoldScaleAfterConv(_Convolution):
    """Mul(Conv(x, w, b), s) = Conv(x, w * s, b * s), w and b constant and s constant per channel"""

    operator: ClassVar[str] = "Mul"

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst, s: Const) -> Any:
        return getattr(op, self.operator)(op.Conv(x, w, b, _label="conv"), s)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Refusal | None:
        if self.operator == "Div" and not finite_reciprocal(s):
            return Refusal("1 / s overflows or is not known")
        return _per_channel(m.value("conv"), s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, s: Ref) -> Any:
        scaled = getattr(op, self.operator)
        b = None if b is None else scaled(b, as_scale(op, s))
        return op.Conv(x, scaled(w, per_filter(op, s, w)), b, **m.attrs("conv"))


class FoldDivisorAfterConv(FoldScaleAfterConv):
    """Div(Conv(x, w, b), s) = Conv(x, w / s, b / s), w and b constant and s constant per channel"""

    operator = "Div"


class FoldShiftAfterConv(_Convolution):
    """Add(Conv(x, w, b), c) = Conv(x, w, b + c), b constant and c constant per channel"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: MaybeConst, c: Const) -> Any:
        return op.Add(op.Conv(x, w, b, _label="conv"), c)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None, c: Ref) -> Refusal | None:
        return _per_channel(m.value("conv"), c)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None, c: Ref) -> Any:
        return op.Conv(x, w, joint_bias(op, b, as_vector(op, c, w.shape[0])), **m.attrs("conv"))


class ConvBiasToAdd(_Convolution):
    """Conv(x, w, b) = Add(Conv(x, w), b), b constant"""

    def source(self, op: PatternBuilder, x: Any, w: Any, b: Const) -> Any:
        return op.Conv(x, w, b, _label="conv")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref) -> Any:
        return op.Add(op.Conv(x, w, **m.attrs("conv")), reshape(op, b, (w.shape[0], *(1,) * (w.rank - 2))))


class FoldScaleBeforeConv(_Convolution):
    """Conv(Mul(x, s), w, b) = Conv(x, w * s, b), w constant and s constant per channel of x"""

    def source(self, op: PatternBuilder, x: Any, s: Const, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Mul(x, s, _label="scaled"), w, b, _label="conv")

    def check(self, m: Match, x: Ref, s: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.value("scaled").shape != x.shape:
            return Refusal("the scale broadcasts the input")
        return _per_channel(x, s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, w: Ref, b: Ref | None) -> Any:
        filters = times_input_channels(op, w, s, m.attrs("conv").get("group", 1))
        return op.Conv(x, filters, b, **m.attrs("conv"))


class FoldShiftBeforeConv(_Convolution):
    """Conv(Add(x, c), w, b) = Conv(x, w, b + Conv(c, w)), w and b constant and c constant per channel of x, without
    padding"""

    def source(self, op: PatternBuilder, x: Any, c: Const, w: Const, b: MaybeConst) -> Any:
        return op.Conv(op.Add(x, c, _label="shifted"), w, b, _label="conv")

    def check(self, m: Match, x: Ref, c: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.value("shifted").shape != x.shape:
            return Refusal("the shift broadcasts the input")
        if not conv_geometry(m.node("conv"), x, w).is_unpadded:
            return _PADDED
        return _per_channel(x, c)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref, w: Ref, b: Ref | None) -> Any:
        response = response_to(op, w, c, m.attrs("conv").get("group", 1))
        return op.Conv(x, w, joint_bias(op, b, response), **m.attrs("conv"))


RULES = (
    FoldBatchNormAfterConv, FoldBatchNormAfterTwoConvs, FoldBatchNormBeforeConv, BatchNormToMulAdd, MulAddToBatchNorm,
    FoldScaleAfterConv, FoldDivisorAfterConv, FoldShiftAfterConv, ConvBiasToAdd, FoldScaleBeforeConv,
    FoldShiftBeforeConv,
)  # fmt: skip
