"""Activations as one operator, and as the arithmetic that older exports spell out: Gelu with erf or tanh, SiLU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.fusion.kernels import refuse_kernel

_CUBIC = 0.044715
"""Coefficients of the tanh form of Gelu (Hendrycks and Gimpel 2016, arXiv:1606.08415)."""
_CONSTANTS = {
    "half": 0.5, "one": 1.0, "three": 3.0, "cubic": _CUBIC, "root": math.sqrt(2.0), "inverse": math.sqrt(0.5),
    "slope": math.sqrt(2.0 / math.pi),
}  # fmt: skip
"""The value that each scalar of the patterns must have."""
_PRECISION = 1e-6  # exports round the constants to float32, or write them with 7 digits


class _Activation(Rule):
    family = "fusion"


def _number(op: ReplacementBuilder, x: Ref, value: float) -> Ref:
    return op.constant(np.array(value, helper.tensor_dtype_to_np_dtype(x.dtype)))


class _FuseGelu(_Activation):
    approximate = "none"
    examples: ClassVar[Mapping[str, Sequence[float]]] = {name: (value,) for name, value in _CONSTANTS.items()}

    def check(self, m: Match, x: Ref, *scalars: Ref) -> Refusal | None:
        for variable, ref in zip(m.pattern.variables[1:], scalars, strict=True):
            wanted = _CONSTANTS[variable.name]
            if not math.isclose(ref.scalar(), wanted, rel_tol=_PRECISION):
                return Refusal(f"a constant is {ref.scalar():.7g} instead of {wanted:.7g}")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, *scalars: Ref) -> Any:
        return op.Gelu(x, approximate=None if self.approximate == "none" else self.approximate)


class FuseErfGelu(_FuseGelu):
    """(x * 0.5) * (Erf(x / sqrt(2)) + 1) = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, root: Scalar, one: Scalar) -> Any:
        return op.Mul(op.Mul(x, half), op.Add(op.Erf(op.Div(x, root)), one))


class FuseErfGeluHalfLast(_FuseGelu):
    """(x * (Erf(x / sqrt(2)) + 1)) * 0.5 = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, root: Scalar, one: Scalar) -> Any:
        return op.Mul(op.Mul(x, op.Add(op.Erf(op.Div(x, root)), one)), half)


class FuseErfGeluHalfInside(_FuseGelu):
    """x * ((Erf(x / sqrt(2)) + 1) * 0.5) = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, root: Scalar, one: Scalar) -> Any:
        return op.Mul(x, op.Mul(op.Add(op.Erf(op.Div(x, root)), one), half))


class FuseErfGeluOfProduct(_FuseGelu):
    """(x * 0.5) * (Erf(x * sqrt(1/2)) + 1) = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, inverse: Scalar, one: Scalar) -> Any:
        return op.Mul(op.Mul(x, half), op.Add(op.Erf(op.Mul(x, inverse)), one))


class FuseErfGeluOfProductHalfLast(_FuseGelu):
    """(x * (Erf(x * sqrt(1/2)) + 1)) * 0.5 = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, inverse: Scalar, one: Scalar) -> Any:
        return op.Mul(op.Mul(x, op.Add(op.Erf(op.Mul(x, inverse)), one)), half)


class FuseErfGeluOfProductHalfInside(_FuseGelu):
    """x * ((Erf(x * sqrt(1/2)) + 1) * 0.5) = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, inverse: Scalar, one: Scalar) -> Any:
        return op.Mul(x, op.Mul(op.Add(op.Erf(op.Mul(x, inverse)), one), half))


class _FuseTanhGelu(_FuseGelu):
    approximate = "tanh"

    def tanh(self, op: PatternBuilder, x: Any, cube: Any, cubic: Any, slope: Any, one: Any) -> Any:
        return op.Add(op.Tanh(op.Mul(op.Add(x, op.Mul(cube, cubic)), slope)), one)


class FuseTanhGelu(_FuseTanhGelu):
    """(x * 0.5) * (Tanh((x + Pow(x, 3) * 0.044715) * sqrt(2/pi)) + 1) = Gelu(x; tanh)"""

    def source(
        self, op: PatternBuilder, x: Any, half: Scalar, three: Scalar, cubic: Scalar, slope: Scalar, one: Scalar
    ) -> Any:
        return op.Mul(op.Mul(x, half), self.tanh(op, x, op.Pow(x, three), cubic, slope, one))


class FuseTanhGeluHalfInside(_FuseTanhGelu):
    """x * ((Tanh((x + Pow(x, 3) * 0.044715) * sqrt(2/pi)) + 1) * 0.5) = Gelu(x; tanh)"""

    def source(
        self, op: PatternBuilder, x: Any, half: Scalar, three: Scalar, cubic: Scalar, slope: Scalar, one: Scalar
    ) -> Any:
        return op.Mul(x, op.Mul(self.tanh(op, x, op.Pow(x, three), cubic, slope, one), half))


class FuseTanhGeluOfCube(_FuseTanhGelu):
    """(x * 0.5) * (Tanh((x + (x * (x * x)) * 0.044715) * sqrt(2/pi)) + 1) = Gelu(x; tanh)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, cubic: Scalar, slope: Scalar, one: Scalar) -> Any:
        return op.Mul(op.Mul(x, half), self.tanh(op, x, op.Mul(x, op.Mul(x, x)), cubic, slope, one))


class FuseTanhGeluFactored(_FuseTanhGelu):
    """(x * 0.5) * (Tanh((x * sqrt(2/pi)) * ((x * 0.044715) * x + 1)) + 1) = Gelu(x; tanh)"""

    def source(self, op: PatternBuilder, x: Any, half: Scalar, cubic: Scalar, slope: Scalar, one: Scalar) -> Any:
        polynomial = op.Add(op.Mul(op.Mul(x, cubic), x), one)
        return op.Mul(op.Mul(x, half), op.Add(op.Tanh(op.Mul(op.Mul(x, slope), polynomial)), one))


class ExpandGelu(_Activation):
    """Gelu(x) = (x * 0.5) * (Erf(x / sqrt(2)) + 1)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Gelu(x, approximate="none")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        half, root, one = (_number(op, x, value) for value in (0.5, math.sqrt(2.0), 1.0))
        return op.Mul(op.Mul(x, half), op.Add(op.Erf(op.Div(x, root)), one))


class ExpandTanhGelu(_Activation):
    """Gelu(x; tanh) = (x * 0.5) * (Tanh((x + (x * (x * x)) * 0.044715) * sqrt(2/pi)) + 1)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Gelu(x, approximate="tanh")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        half, cubic, slope, one = (_number(op, x, _CONSTANTS[name]) for name in ("half", "cubic", "slope", "one"))
        bent = op.Add(x, op.Mul(op.Mul(x, op.Mul(x, x)), cubic))
        return op.Mul(op.Mul(x, half), op.Add(op.Tanh(op.Mul(bent, slope)), one))


class GeluAsMicrosoft(_Activation):
    """Gelu(x) = com.microsoft.Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Gelu(x, approximate="none")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return refuse_kernel(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.ms.Gelu(x)


class GeluFromMicrosoft(_Activation):
    """com.microsoft.Gelu(x) = Gelu(x)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.ms.Gelu(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.Gelu(x)


class GeluAsFastGelu(_Activation):
    """Gelu(x; tanh) = FastGelu(x)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Gelu(x, approximate="tanh")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return refuse_kernel(x) if x.rank else Refusal("FastGelu takes no scalar")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.ms.FastGelu(x)


class FuseQuickGelu(_Activation):
    """x * Sigmoid(x * c) = QuickGelu(x; alpha=c)"""

    def source(self, op: PatternBuilder, x: Any, c: Scalar) -> Any:
        return op.Mul(x, op.Sigmoid(op.Mul(x, c)))

    def check(self, m: Match, x: Ref, c: Ref) -> Refusal | None:
        return refuse_kernel(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref) -> Any:
        return op.ms.QuickGelu(x, alpha=c.scalar())


class FuseSilu(_Activation):
    """x * Sigmoid(x) = QuickGelu(x; alpha=1)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Mul(x, op.Sigmoid(x))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return refuse_kernel(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return op.ms.QuickGelu(x, alpha=1.0)


class QuickGeluAsScaledSilu(_Activation):
    """QuickGelu(x; alpha) = QuickGelu(x * alpha; alpha=1) * (1 / alpha)

    ONNX Runtime has a kernel of its own for alpha = 1, a third of the time of the other; the factors may fold into
    weights.
    """

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.ms.QuickGelu(x, alpha=op.attr("alpha", 1.702))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        alpha = m.attr("alpha")
        return Refusal(f"alpha is {alpha}") if alpha in (0.0, 1.0) or not math.isfinite(alpha) else None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        alpha = m.attr("alpha")
        return op.Mul(op.ms.QuickGelu(op.Mul(x, _number(op, x, alpha)), alpha=1.0), _number(op, x, 1.0 / alpha))


class ExpandQuickGelu(_Activation):
    """QuickGelu(x; alpha) = x * Sigmoid(x * alpha)"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.ms.QuickGelu(x, alpha=op.attr("alpha", 1.702))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        alpha = m.attr("alpha")
        return op.Mul(x, op.Sigmoid(x if alpha == 1.0 else op.Mul(x, _number(op, x, alpha))))


RULES = (
    FuseErfGelu,
    FuseErfGeluHalfLast,
    FuseErfGeluHalfInside,
    FuseErfGeluOfProduct,
    FuseErfGeluOfProductHalfLast,
    FuseErfGeluOfProductHalfInside,
    FuseTanhGelu,
    FuseTanhGeluHalfInside,
    FuseTanhGeluOfCube,
    FuseTanhGeluFactored,
    ExpandGelu,
    ExpandTanhGelu,
    GeluAsMicrosoft,
    GeluFromMicrosoft,
    GeluAsFastGelu,
    FuseQuickGelu,
    FuseSilu,
    QuickGeluAsScaledSilu,
    ExpandQuickGelu,
)
