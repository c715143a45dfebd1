"""Elimination of functions that undo, repeat or bound each other."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.constants import uniform
from graph_rewrite.rules.helpers.element_types import is_float


class _Elimination(Rule):
    family = "elimination"


class DropInvolution(_Elimination):
    """f(f(x)) = x for f in Neg, Not, BitwiseNot"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        inner = op.any_of({"Neg", "Not", "BitwiseNot"})(x, _label="inner")
        return op.any_of({"Neg", "Not", "BitwiseNot"})(inner, _label="outer")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if m.node("inner").op == m.node("outer").op else Refusal("the two functions differ")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class DropRepeated(_Elimination):
    """f(f(x)) = f(x) for f in Relu, Abs, Sign, Floor, Ceil, Round"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        idempotent = {"Relu", "Abs", "Sign", "Floor", "Ceil", "Round"}
        return op.any_of(idempotent)(op.any_of(idempotent)(x, _label="inner"), _label="outer")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if m.node("inner").op == m.node("outer").op else Refusal("the two functions differ")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return m.value("inner")


class DropReluOfNonNegative(_Elimination):
    """Relu(f(x)) = f(x) for f in Sigmoid, HardSigmoid, Softmax, Softplus, Exp, Abs"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        functions = {"Sigmoid", "HardSigmoid", "Softmax", "Softplus", "Exp", "Abs"}
        return op.Relu(op.any_of(functions)(x, _label="f"))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return m.value("f")


class ClipAsRelu(_Elimination):
    """Clip(x, 0) = Relu(x)"""

    def source(self, op: PatternBuilder, x: Any, low: Const, high: MaybeConst) -> Any:
        return op.Clip(x, low, high)

    def check(self, m: Match, x: Ref, low: Ref, high: Ref | None) -> Refusal | None:
        if not is_float(x):
            return Refusal("the elements are not floating-point numbers")
        if uniform(low) != 0:
            return Refusal("the lower bound is not 0")
        largest = float(np.finfo(helper.tensor_dtype_to_np_dtype(x.dtype)).max)
        return None if high is None or high.scalar() >= largest else Refusal("there is an upper bound")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, low: Ref, high: Ref | None) -> Any:
        return op.Relu(x)


class ComposeClips(_Elimination):
    """Clip(Clip(x, a, b), c, d) = Clip(x, clip(a, c, d), clip(b, c, d)), and with Relu(x) for Clip(x, 0, inf)"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any, inner: Values, low: MaybeConst, high: MaybeConst) -> Any:
        return op.Clip(op.any_of({"Clip", "Relu"})(x, inner, _label="inner"), low, high)

    def check(self, m: Match, x: Ref, inner: tuple[Ref, ...], low: Ref | None, high: Ref | None) -> Refusal | None:
        if m.opset < 11:
            return Refusal("before opset 11 the bounds of Clip are attributes")
        if not is_float(x):
            return Refusal("the elements are not floating-point numbers")
        if not all(ref.is_const for ref in inner):
            return Refusal("the bounds of the inner Clip are not constants")
        (a, b), (c, d) = self._inner(m, inner), _bounds(low, high)
        return None if a <= b and c <= d else Refusal("a lower bound is above the upper one")

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, inner: tuple[Ref, ...], low: Ref | None, high: Ref | None
    ) -> Any:
        (a, b), (c, d) = self._inner(m, inner), _bounds(low, high)
        dtype = helper.tensor_dtype_to_np_dtype(x.dtype)
        both = [min(max(bound, c), d) for bound in (a, b)]
        return op.Clip(x, *(None if np.isinf(bound) else op.constant(np.array(bound, dtype=dtype)) for bound in both))

    @staticmethod
    def _inner(m: Match, inner: tuple[Ref, ...]) -> tuple[float, float]:
        return (0.0, np.inf) if m.node("inner").op == "Relu" else _bounds(*(*inner, None, None)[:2])


def _bounds(low: Ref | None, high: Ref | None) -> tuple[float, float]:
    return (-np.inf if low is None else low.scalar()), (np.inf if high is None else high.scalar())


RULES = (DropInvolution, DropRepeated, DropReluOfNonNegative, ClipAsRelu, ComposeClips)
