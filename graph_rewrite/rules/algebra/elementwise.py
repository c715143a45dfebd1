"""Element-wise algebra: association, distribution, and operators expressed by one another.

All hold for real numbers; in floating point the rounding differs in the last places.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Scalar, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import SIGNED_ZERO, Refusal, Rule
from graph_rewrite.rules.helpers.constants import finite_reciprocal, uniform
from graph_rewrite.rules.helpers.element_types import is_float
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.operands import operands


class _Elementwise(Rule):
    family = "elementwise"


class Reassociate(_Elementwise):
    """f(f(a, b), c) = f(a, f(b, c)) for f in Add, Mul, with operands in any order

    Constants that come together are folded.
    """

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        both = {"Add", "Mul"}
        return op.any_of(both)(op.any_of(both)(a, b, _label="inner"), c, _label="outer")

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return None if m.node("inner").op == m.node("outer").op else Refusal("a sum and a product don't associate")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return apply_like(op, m, "outer", a, apply_like(op, m, "outer", b, c))


class Factor(_Elementwise):
    """a * c + b * c = (a + b) * c, and with - for +"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.any_of({"Add", "Sub"})(op.Mul(a, c), op.Mul(b, c), _label="sum")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.Mul(apply_like(op, m, "sum", a, b), c)


class Distribute(_Elementwise):
    """(a + b) * c = a * c + b * c, and with - for +"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Mul(op.any_of({"Add", "Sub"})(a, b, _label="sum"), c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return apply_like(op, m, "sum", op.Mul(a, c), op.Mul(b, c))


class FactorDivisor(_Elementwise):
    """a / c + b / c = (a + b) / c, and with - for +"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.any_of({"Add", "Sub"})(op.Div(a, c), op.Div(b, c), _label="sum")

    def check(self, m: Match, a: Ref, b: Ref, c: Ref) -> Refusal | None:
        return None if is_float(a) else Refusal("integer division rounds")

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.Div(apply_like(op, m, "sum", a, b), c)


class DivAsMul(_Elementwise):
    """x / c = x * (1 / c)

    Exact where c is a power of two; else the rounding of 1 / c adds up to half a unit in the last place.
    """

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Div(x, c)

    def check(self, m: Match, x: Ref, c: Ref) -> Refusal | None:
        if not is_float(x):
            return Refusal("the elements are not floating-point numbers")
        return None if finite_reciprocal(c) else Refusal("1 / c overflows or is not known")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref) -> Any:
        return op.Mul(x, op.Reciprocal(c))


class SubAsAdd(_Elementwise):
    """x - c = x + (-c)"""

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Sub(x, c)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref) -> Any:
        return op.Add(x, op.Neg(c))


class AddOfNeg(_Elementwise):
    """x + (-y) = x - y"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.Add(x, op.Neg(y))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        return op.Sub(x, y)


class SubOfNeg(_Elementwise):
    """x - (-y) = x + y"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.Sub(x, op.Neg(y))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        return op.Add(x, y)


class SquareAsPow(_Elementwise):
    """x * x = Pow(x, 2)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Mul(x, x)

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if is_float(x) else Refusal("the elements are not floating-point numbers")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.Pow(x, _number(op, x, 2))


class PowAsProduct(_Elementwise):
    """Pow(x, 2) = x * x, and Pow(x, 3) = x * x * x"""

    def source(self, op: PatternBuilder, x: Any, e: Scalar) -> Any:
        return op.Pow(x, e)

    def check(self, m: Match, x: Ref, e: Ref) -> Refusal | None:
        return None if uniform(e) in (2, 3) else Refusal("the exponent is not 2 or 3")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, e: Ref) -> Any:
        square = op.Mul(x, x)
        return square if uniform(e) == 2 else op.Mul(square, x)


class PowAsRoot(_Elementwise):
    """Pow(x, 1/2) = Sqrt(x), Pow(x, -1/2) = Reciprocal(Sqrt(x)), and Pow(x, -1) = Reciprocal(x)

    Sqrt(-0) is -0 where Pow(-0, 1/2) is 0.
    """

    lossy = frozenset({SIGNED_ZERO})

    def source(self, op: PatternBuilder, x: Any, e: Scalar) -> Any:
        return op.Pow(x, e)

    def check(self, m: Match, x: Ref, e: Ref) -> Refusal | None:
        return None if uniform(e) in (0.5, -0.5, -1) else Refusal("the exponent is not 1/2, -1/2 or -1")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, e: Ref) -> Any:
        exponent = uniform(e)
        root = x if exponent == -1 else op.Sqrt(x)
        return root if exponent == 0.5 else op.Reciprocal(root)


class DivOfOne(_Elementwise):
    """1 / x = Reciprocal(x)"""

    def source(self, op: PatternBuilder, one: Const, x: Any) -> Any:
        return op.Div(one, x)

    def check(self, m: Match, one: Ref, x: Ref) -> Refusal | None:
        return None if uniform(one) == 1 else Refusal("the dividend is not 1")

    def target(self, op: ReplacementBuilder, m: Match, one: Ref, x: Ref) -> Any:
        return op.Reciprocal(x)


class MulOfReciprocal(_Elementwise):
    """x * Reciprocal(y) = x / y"""

    def source(self, op: PatternBuilder, x: Any, y: Any) -> Any:
        return op.Mul(x, op.Reciprocal(y))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref) -> Any:
        return op.Div(x, y)


class MulAsHardSwish(_Elementwise):
    """x * HardSigmoid(x, alpha=1/6, beta=1/2) = HardSwish(x)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Mul(x, op.HardSigmoid(x, alpha=op.attr("alpha", 0.2), beta=0.5))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if abs(m.attr("alpha") * 6 - 1) < 1e-6 else Refusal("alpha is not 1/6")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.HardSwish(x)


class HardSwishAsMul(_Elementwise):
    """HardSwish(x) = x * HardSigmoid(x, alpha=1/6, beta=1/2)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.HardSwish(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.Mul(x, op.HardSigmoid(x, alpha=1 / 6, beta=0.5))


class AddsAsSum(_Elementwise):
    """(a + b) + c = Sum(a, b, c)"""

    def source(self, op: PatternBuilder, a: Any, b: Any, c: Any) -> Any:
        return op.Add(op.Add(a, b, _label="inner"), c)

    def target(self, op: ReplacementBuilder, m: Match, a: Ref, b: Ref, c: Ref) -> Any:
        return op.Sum(*operands(m, "inner"), c)


class AddToSum(_Elementwise):
    """Sum(a, b, ...) + c = Sum(a, b, ..., c)"""

    def source(self, op: PatternBuilder, xs: Values, c: Any) -> Any:
        return op.Add(op.Sum(xs), c)

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...], c: Ref) -> Any:
        return op.Sum(*xs, c)


class SumAsAdds(_Elementwise):
    """Sum(a, b, c, ...) = ((a + b) + c) + ..."""

    def source(self, op: PatternBuilder, xs: Values) -> Any:
        return op.Sum(xs)

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...]) -> Any:
        total = xs[0]
        for x in xs[1:]:
            total = op.Add(total, x)
        return total


def _number(op: ReplacementBuilder, x: Ref, value: float) -> Ref:
    """Return a scalar constant of the type of x's elements."""
    return op.constant(np.array(value, dtype=helper.tensor_dtype_to_np_dtype(x.dtype)))


RULES = (
    Reassociate, Factor, Distribute, FactorDivisor, DivAsMul, SubAsAdd, AddOfNeg, SubOfNeg, SquareAsPow, PowAsProduct,
    PowAsRoot, DivOfOne, MulOfReciprocal, MulAsHardSwish, HardSwishAsMul, AddsAsSum, AddToSum, SumAsAdds,
)  # fmt: skip
