"""Quantisation moved in front of what keeps the order of numbers, or only moves them.

ONNX Runtime makes an integer kernel of an operator between DequantizeLinear and QuantizeLinear. A Relu, Clip, Concat,
Flatten or DepthToSpace between the operator and its QuantizeLinear hides the pair, and then a convolution runs in
floating-point numbers. ONNX Runtime itself takes away a Relu behind which the least integer stands for zero, and pairs
of DequantizeLinear and QuantizeLinear; it looks through Reshape, Transpose, Slice and MaxPool.

Dividing by a positive scale, rounding, shifting and saturating all keep the order of numbers, in floating point too. So
quantising the larger of two numbers gives the larger of the two quantised, bit by bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.element_types import numpy_dtype


class _Quantisation(Rule):
    family = "fusion"


def _refuse(m: Match, x: Ref, s: Ref, z: Ref) -> Refusal | None:
    """Refuse quantisation of other numbers than float, to other integers than of 8 bits, or per axis."""
    if x.dtype != TensorProto.FLOAT or z.dtype not in (TensorProto.UINT8, TensorProto.INT8):
        return Refusal("it does not quantise float to integers of 8 bits")
    if s.rank or z.rank or m.attrs("quantise").keys() - {"axis", "saturate"}:
        return Refusal("it does not quantise all of the tensor by one scale")
    return None if s.scalar() > 0 else Refusal("the scale is not positive")


def _refuse_relu(m: Match, x: Ref, s: Ref, z: Ref) -> Refusal | None:
    if (refusal := _refuse(m, x, s, z)) is not None:
        return refusal
    if int(z.scalar()) == np.iinfo(numpy_dtype(z)).min:
        return Refusal("ONNX Runtime takes away this Relu by itself")
    return None


class QuantizeBeforeRelu(_Quantisation):
    """QuantizeLinear(Relu(x), s, z) = Clip(QuantizeLinear(x, s, z), min=z)"""

    def source(self, op: PatternBuilder, x: Any, s: Const, z: Const) -> Any:
        return op.QuantizeLinear(op.Relu(x), s, z, _label="quantise")

    def check(self, m: Match, x: Ref, s: Ref, z: Ref) -> Refusal | None:
        return _refuse_relu(m, x, s, z)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, z: Ref) -> Any:
        return op.Clip(op.QuantizeLinear(x, s, z), z)


class QuantizeAroundRelu(_Quantisation):
    """QuantizeLinear(Relu(x), s, z) = QuantizeLinear(Relu(DequantizeLinear(QuantizeLinear(x, s, z), s, z)), s, z), for
    int8

    An operator in front of the Relu then stands between DequantizeLinear and QuantizeLinear on both sides, which on x86
    ONNX Runtime asks for where integers have a sign.
    """

    def source(self, op: PatternBuilder, x: Any, s: Const, z: Const) -> Any:
        return op.QuantizeLinear(op.Relu(x), s, z, _label="quantise")

    def check(self, m: Match, x: Ref, s: Ref, z: Ref) -> Refusal | None:
        before = m.producer(x)
        if z.dtype != TensorProto.INT8 or (before is not None and before.op == "DequantizeLinear"):
            return Refusal("the operand is quantised already, or to integers without a sign")
        return _refuse_relu(m, x, s, z)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, z: Ref) -> Any:
        rounded = op.DequantizeLinear(op.QuantizeLinear(x, s, z), s, z)
        return op.QuantizeLinear(op.Relu(rounded), s, z)


_TIE = 1e-3
"""Steps about the middle of two integers in which rounding of the division may decide."""


def _bound(limit: Ref | None, s: Ref, z: Ref, end: int) -> int:
    """Return a bound of a Clip as it is quantised; where there is none, the end of the integers."""
    if limit is None:
        return end
    steps = np.rint(np.float32(limit.scalar()) / np.float32(s.scalar())) + np.float32(z.scalar())
    kind = np.iinfo(numpy_dtype(z))
    return int(np.clip(steps, kind.min, kind.max))


class QuantizeBeforeClip(_Quantisation):
    """QuantizeLinear(Clip(x, l, h), s, z) = Clip(QuantizeLinear(x, s, z), QuantizeLinear(l, s, z), QuantizeLinear(h, s,
    z)), without bounds at the ends of the integers"""

    def source(self, op: PatternBuilder, x: Any, low: MaybeConst, high: MaybeConst, s: Const, z: Const) -> Any:
        return op.QuantizeLinear(op.Clip(x, low, high), s, z, _label="quantise")

    def check(self, m: Match, x: Ref, low: Ref | None, high: Ref | None, s: Ref, z: Ref) -> Refusal | None:
        if m.opset < 11:
            return Refusal("before opset 11 the bounds of Clip are attributes")
        if (refusal := _refuse(m, x, s, z)) is not None:
            return refusal
        bounds = [limit.scalar() for limit in (low, high) if limit is not None]
        if not all(map(np.isfinite, bounds)) or bounds != sorted(bounds):
            return Refusal("the bounds are not finite and in order")
        if any(abs(steps % 1 - 0.5) < _TIE for steps in (bound / s.scalar() for bound in bounds)):
            return Refusal("a bound lies halfway between two integers: rounding decides")
        return None

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, low: Ref | None, high: Ref | None, s: Ref, z: Ref
    ) -> Any:
        kind, quantised = np.iinfo(numpy_dtype(z)), op.QuantizeLinear(x, s, z)
        least, most = _bound(low, s, z, kind.min), _bound(high, s, z, kind.max)
        ends = [
            None if bound == end else op.constant(np.array(bound, numpy_dtype(z)))
            for bound, end in ((least, kind.min), (most, kind.max))
        ]
        return quantised if ends == [None, None] else op.Clip(quantised, *ends)


class QuantizeBeforeConcat(_Quantisation):
    """QuantizeLinear(Concat(x1, ..., xn), s, z) = Concat(QuantizeLinear(x1, s, z), ..., QuantizeLinear(xn, s, z))"""

    def source(self, op: PatternBuilder, xs: Values, s: Const, z: Const) -> Any:
        return op.QuantizeLinear(op.Concat(xs, axis=op.attr("axis")), s, z, _label="quantise")

    def check(self, m: Match, xs: tuple[Ref, ...], s: Ref, z: Ref) -> Refusal | None:
        if any(x.is_const for x in xs):
            return Refusal("a part is a constant")
        return _refuse(m, xs[0], s, z)

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], s: Ref, z: Ref) -> Any:
        return op.Concat(*(op.QuantizeLinear(x, s, z) for x in xs), axis=m.attr("axis"))


class QuantizeBeforeMove(_Quantisation):
    """QuantizeLinear(f(x), s, z) = f(QuantizeLinear(x, s, z)), where f is Flatten or DepthToSpace"""

    def source(self, op: PatternBuilder, x: Any, s: Const, z: Const) -> Any:
        return op.QuantizeLinear(op.any_of({"Flatten", "DepthToSpace"})(x, _label="move"), s, z, _label="quantise")

    def check(self, m: Match, x: Ref, s: Ref, z: Ref) -> Refusal | None:
        return _refuse(m, x, s, z)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s: Ref, z: Ref) -> Any:
        return op.apply(m.node("move").op, "", m.attrs("move"), (op.QuantizeLinear(x, s, z),), 1)[0]


RULES = (QuantizeBeforeRelu, QuantizeAroundRelu, QuantizeBeforeClip, QuantizeBeforeConcat, QuantizeBeforeMove)
