"""Normalizations and Softmax as one operator, and as the arithmetic that older exports spell out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.constants import ints


class _Normalization(Rule):
    family = "fusion"
    examples: ClassVar[Mapping[str, Sequence[float]]] = {"two": (2.0,)}


def _epsilon(op: ReplacementBuilder, x: Ref, value: float) -> Ref:
    """Return the attribute epsilon as a constant: rounded to float32, as attributes are, whatever the type of x."""
    return op.constant(np.array(np.float32(value), helper.tensor_dtype_to_np_dtype(x.dtype)))


def _refuse_epsilon(epsilon: Ref) -> Refusal | None:
    """Refuse a number of float64 that changes when it becomes an attribute."""
    value = epsilon.scalar()
    return None if float(np.float32(value)) == value else Refusal(f"{value} is no number of float32, as attributes are")


def _refuse_axes(x: Ref, axes: tuple[Ref, ...], two: Ref | None, *weights: Ref) -> Refusal | None:
    """Refuse Reduce operators, an exponent or weights that are not those of a normalisation over the last axes."""
    if not x.rank:
        # An exponent of several axes can give a scalar axes to be reduced.
        return Refusal("a scalar has no axes to normalise")
    reduced = {tuple(sorted(axis % x.rank for axis in ints(a) or ())) for a in axes}
    first = min((axis for found in reduced for axis in found), default=x.rank)
    if reduced != {tuple(range(first, x.rank))} or first == x.rank:
        return Refusal("the means are not all over the last axes")
    if two is not None and two.scalar() != 2.0:
        return Refusal(f"the exponent is {two.scalar()} instead of 2")
    if any(weight.shape != x.shape[first:] for weight in weights):
        return Refusal("scale or bias does not have the shape of the normalised axes")
    return None


def _first_axis(axes: Ref) -> int:
    """Return the first axis of a checked normalisation, counted from the end."""
    return -len(ints(axes) or ())


def _centred(op: PatternBuilder, x: Any, axes: Any) -> Any:
    return op.Sub(x, op.ReduceMean(x, axes, keepdims=1))


def _over_root(op: PatternBuilder, x: Any, squares: Any, axes: Any, epsilon: Any) -> Any:
    return op.Div(x, op.Sqrt(op.Add(op.ReduceMean(squares, axes, keepdims=1), epsilon)))


class FuseLayerNormalization(_Normalization):
    """(d / Sqrt(Mean(Pow(d, 2)) + eps)) * gamma + beta = LayerNormalization(x, gamma, beta), where d = x - Mean(x)"""

    def source(
        self, op: PatternBuilder, x: Any, mean_axes: Const, axes: Const, two: Scalar, epsilon: Scalar, gamma: Any,
        beta: Any,
    ) -> Any:  # fmt: skip
        d = _centred(op, x, mean_axes)
        return op.Add(op.Mul(_over_root(op, d, op.Pow(d, two), axes, epsilon), gamma), beta)

    def check(
        self, m: Match, x: Ref, mean_axes: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref, beta: Ref
    ) -> Refusal | None:
        return _refuse_axes(x, (mean_axes, axes), two, gamma, beta) or _refuse_epsilon(epsilon)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, mean_axes: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref,
        beta: Ref,
    ) -> Any:  # fmt: skip
        return op.LayerNormalization(x, gamma, beta, axis=_first_axis(axes), epsilon=epsilon.scalar())


class FuseLayerNormalizationOfProduct(_Normalization):
    """(d / Sqrt(Mean(d * d) + eps)) * gamma + beta = LayerNormalization(x, gamma, beta), where d = x - Mean(x)"""

    def source(
        self, op: PatternBuilder, x: Any, mean_axes: Const, axes: Const, epsilon: Scalar, gamma: Any, beta: Any
    ) -> Any:
        d = _centred(op, x, mean_axes)
        return op.Add(op.Mul(_over_root(op, d, op.Mul(d, d), axes, epsilon), gamma), beta)

    def check(self, m: Match, x: Ref, mean_axes: Ref, axes: Ref, epsilon: Ref, gamma: Ref, beta: Ref) -> Refusal | None:
        return _refuse_axes(x, (mean_axes, axes), None, gamma, beta) or _refuse_epsilon(epsilon)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, mean_axes: Ref, axes: Ref, epsilon: Ref, gamma: Ref, beta: Ref
    ) -> Any:
        return op.LayerNormalization(x, gamma, beta, axis=_first_axis(axes), epsilon=epsilon.scalar())


class FusePlainLayerNormalization(_Normalization):
    """d / Sqrt(Mean(Pow(d, 2)) + eps) = LayerNormalization(x, 1), where d = x - Mean(x)"""

    def source(self, op: PatternBuilder, x: Any, mean_axes: Const, axes: Const, two: Scalar, epsilon: Scalar) -> Any:
        d = _centred(op, x, mean_axes)
        return _over_root(op, d, op.Pow(d, two), axes, epsilon)

    def check(self, m: Match, x: Ref, mean_axes: Ref, axes: Ref, two: Ref, epsilon: Ref) -> Refusal | None:
        return _refuse_axes(x, (mean_axes, axes), two) or _refuse_epsilon(epsilon)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, mean_axes: Ref, axes: Ref, two: Ref, epsilon: Ref
    ) -> Any:
        ones = np.ones(x.shape[_first_axis(axes) :], helper.tensor_dtype_to_np_dtype(x.dtype))
        return op.LayerNormalization(x, op.constant(ones), axis=_first_axis(axes), epsilon=epsilon.scalar())


class ScaleIntoLayerNormalization(_Normalization):
    """LayerNormalization(x, gamma, beta) * c = LayerNormalization(x, gamma * c, beta * c), all but x constant"""

    def source(self, op: PatternBuilder, x: Any, gamma: Const, beta: Maybe, c: Const) -> Any:
        return op.Mul(op.LayerNormalization(x, gamma, beta, _label="norm"), c)

    def check(self, m: Match, x: Ref, gamma: Ref, beta: Ref | None, c: Ref) -> Refusal | None:
        if beta is not None and not beta.is_const:
            return Refusal("the bias is not constant")
        fits = c.type.size == 1 or c.shape == gamma.shape
        return None if fits else Refusal("the factor does not have the shape of the scale")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, gamma: Ref, beta: Ref | None, c: Ref) -> Any:
        factor = op.Reshape(c, op.ints()) if c.type.size == 1 else c
        bias = None if beta is None else op.Mul(beta, factor)
        return op.LayerNormalization(x, op.Mul(gamma, factor), bias, **m.attrs("norm"))


class BiasIntoLayerNormalization(_Normalization):
    """LayerNormalization(x, gamma, beta) + c = LayerNormalization(x, gamma, beta + c), beta and c constant"""

    def source(self, op: PatternBuilder, x: Any, gamma: Any, beta: Maybe, c: Const) -> Any:
        return op.Add(op.LayerNormalization(x, gamma, beta, _label="norm"), c)

    def check(self, m: Match, x: Ref, gamma: Ref, beta: Ref | None, c: Ref) -> Refusal | None:
        if beta is not None and not beta.is_const:
            return Refusal("the bias is not constant")
        fits = c.shape == gamma.shape and (beta is None or beta.shape == c.shape)
        return None if fits else Refusal("what is added does not have the shape of the scale")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, gamma: Ref, beta: Ref | None, c: Ref) -> Any:
        return op.LayerNormalization(x, gamma, c if beta is None else op.Add(beta, c), **m.attrs("norm"))


class ExpandLayerNormalization(_Normalization):
    """LayerNormalization(x, gamma, beta) = (d / Sqrt(Mean(d * d) + eps)) * gamma + beta, where d = x - Mean(x)"""

    def source(self, op: PatternBuilder, x: Any, gamma: Any, beta: Maybe) -> Any:
        return op.LayerNormalization(x, gamma, beta, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, gamma: Ref, beta: Ref | None) -> Any:
        axes = op.ints(*range(m.attr("axis") % x.rank - x.rank, 0))
        d = op.Sub(x, op.ReduceMean(x, axes, keepdims=1))
        variance = op.ReduceMean(op.Mul(d, d), axes, keepdims=1)
        normal = op.Div(d, op.Sqrt(op.Add(variance, _epsilon(op, x, m.attr("epsilon")))))
        scaled = op.Mul(normal, gamma)
        return scaled if beta is None else op.Add(scaled, beta)


class FuseRMSNormalization(_Normalization):
    """(x * Reciprocal(Sqrt(Mean(Pow(x, 2)) + eps))) * gamma = RMSNormalization(x, gamma)"""

    def source(self, op: PatternBuilder, x: Any, axes: Const, two: Scalar, epsilon: Scalar, gamma: Any) -> Any:
        mean = op.ReduceMean(op.Pow(x, two), axes, keepdims=1)
        return op.Mul(op.Mul(x, op.Reciprocal(op.Sqrt(op.Add(mean, epsilon)))), gamma)

    def check(self, m: Match, x: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref) -> Refusal | None:
        return _refuse_axes(x, (axes,), two, gamma) or _refuse_epsilon(epsilon)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref) -> Any:
        return op.RMSNormalization(x, gamma, axis=_first_axis(axes), epsilon=epsilon.scalar())


class FuseDividedRMSNormalization(_Normalization):
    """(x / Sqrt(Mean(Pow(x, 2)) + eps)) * gamma = RMSNormalization(x, gamma)"""

    def source(self, op: PatternBuilder, x: Any, axes: Const, two: Scalar, epsilon: Scalar, gamma: Any) -> Any:
        return op.Mul(_over_root(op, x, op.Pow(x, two), axes, epsilon), gamma)

    def check(self, m: Match, x: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref) -> Refusal | None:
        return _refuse_axes(x, (axes,), two, gamma) or _refuse_epsilon(epsilon)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, axes: Ref, two: Ref, epsilon: Ref, gamma: Ref) -> Any:
        return op.RMSNormalization(x, gamma, axis=_first_axis(axes), epsilon=epsilon.scalar())


class ExpandRMSNormalization(_Normalization):
    """RMSNormalization(x, gamma) = (x / Sqrt(Mean(x * x) + eps)) * gamma"""

    def source(self, op: PatternBuilder, x: Any, gamma: Any) -> Any:
        return op.RMSNormalization(x, gamma, axis=op.attr("axis", -1), epsilon=op.attr("epsilon", 1e-5))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, gamma: Ref) -> Any:
        axes = op.ints(*range(m.attr("axis") % x.rank - x.rank, 0))
        mean = op.ReduceMean(op.Mul(x, x), axes, keepdims=1)
        return op.Mul(op.Div(x, op.Sqrt(op.Add(mean, _epsilon(op, x, m.attr("epsilon"))))), gamma)


class FuseSoftmax(_Normalization):
    """e / Sum(e) = Softmax(x), where e = Exp(x - Max(x)), over one axis"""

    def source(self, op: PatternBuilder, x: Any, max_axes: Const, axes: Const) -> Any:
        e = op.Exp(op.Sub(x, op.ReduceMax(x, max_axes, keepdims=1)))
        return op.Div(e, op.ReduceSum(e, axes, keepdims=1))

    def check(self, m: Match, x: Ref, max_axes: Ref, axes: Ref) -> Refusal | None:
        found = [tuple(axis % x.rank for axis in ints(a) or ()) for a in (max_axes, axes)]
        alike = found[0] == found[1] and len(found[0]) == 1
        return None if alike else Refusal("maximum and sum are not over one and the same axis")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, max_axes: Ref, axes: Ref) -> Any:
        return op.Softmax(x, axis=(ints(axes) or (-1,))[0] % x.rank)


class ExpandSoftmax(_Normalization):
    """Softmax(x) = e / Sum(e), where e = Exp(x - Max(x))"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Softmax(x, axis=op.attr("axis", -1))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        axes = op.ints(m.attr("axis") % x.rank)
        e = op.Exp(op.Sub(x, op.ReduceMax(x, axes, keepdims=1)))
        return op.Div(e, op.ReduceSum(e, axes, keepdims=1))


RULES = (
    FuseLayerNormalization,
    FuseLayerNormalizationOfProduct,
    FusePlainLayerNormalization,
    ScaleIntoLayerNormalization,
    BiasIntoLayerNormalization,
    ExpandLayerNormalization,
    FuseRMSNormalization,
    FuseDividedRMSNormalization,
    ExpandRMSNormalization,
    FuseSoftmax,
    ExpandSoftmax,
)
