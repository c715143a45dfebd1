"""Elimination: operators that do nothing, and neutral elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import ints, uniform
from graph_rewrite.rules.helpers.elementwise import apply_like


class _Elimination(Rule):
    family = "elimination"


class DropIdentity(_Elimination):
    """Identity(x) = x"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Identity(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class DropDropout(_Elimination):
    """Dropout(x) = x, at inference"""

    def source(self, op: PatternBuilder, x: Any, ratio: Maybe, training: Maybe) -> Any:
        return op.Dropout(x, ratio, training)

    def check(self, m: Match, x: Ref, ratio: Ref | None, training: Ref | None) -> Refusal | None:
        if training is None or uniform(training) == 0:
            return None
        return Refusal("training_mode is set" if training.is_const else "training_mode is decided at run time")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, ratio: Ref | None, training: Ref | None) -> Any:
        return x


class DropSingleOperand(_Elimination):
    """f(x) = x for f in Concat, Sum, Mean, Max, Min"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.any_of({"Concat", "Sum", "Mean", "Max", "Min"})(x)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class DropCast(_Elimination):
    """Cast(x, to=type of x) = x"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Cast(x, to=op.attr("to"))

    def check(self, m: Match, x: Ref) -> Refusal | None:
        return None if m.attr("to") == x.dtype else Refusal("the element types differ")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class ComposeCasts(_Elimination):
    """Cast(Cast(x, to=a), to=b) = Cast(x, to=b), where a holds every value of x exactly"""

    shared_interior = True

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.Cast(op.Cast(x, to=op.attr("a")), to=op.attr("b"), _label="outer")

    def check(self, m: Match, x: Ref) -> Refusal | None:
        if m.attr("b") == TensorProto.STRING:
            return Refusal("how a number is written depends on its type")
        if _lossless(x.dtype, m.attr("a")):
            return None
        names = [TensorProto.DataType.Name(dtype).lower() for dtype in (m.attr("a"), x.dtype)]
        return Refusal(f"{names[0]} does not hold every {names[1]} exactly")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x if m.attr("b") == x.dtype else apply_like(op, m, "outer", x)


class _Neutral(_Elimination):
    neutral: float

    def check(self, m: Match, x: Ref, c: Ref) -> Refusal | None:
        if uniform(c) != self.neutral:
            return Refusal(f"the constant is not {self.neutral:g} everywhere")
        return None if m.root().shape == x.shape else Refusal("the constant broadcasts x to a larger shape")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, c: Ref) -> Any:
        return x


class AddZero(_Neutral):
    """x + 0 = x"""

    neutral = 0.0

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Add(x, c)


class SubZero(_Neutral):
    """x - 0 = x"""

    neutral = 0.0

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Sub(x, c)


class MulOne(_Neutral):
    """x * 1 = x"""

    neutral = 1.0

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Mul(x, c)


class DivOne(_Neutral):
    """x / 1 = x"""

    neutral = 1.0

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Div(x, c)


class PowOne(_Neutral):
    """Pow(x, 1) = x"""

    neutral = 1.0

    def source(self, op: PatternBuilder, x: Any, c: Const) -> Any:
        return op.Pow(x, c)


class DropPad(_Elimination):
    """Pad(x, 0) = x"""

    def source(self, op: PatternBuilder, x: Any, pads: Const, value: Maybe, axes: Maybe) -> Any:
        return op.Pad(x, pads, value, axes)

    def check(self, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Refusal | None:
        return None if not any(ints(pads) or (1,)) else Refusal("the pads are not all 0")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, pads: Ref, value: Ref | None, axes: Ref | None) -> Any:
        return x


class DropExpand(_Elimination):
    """Expand(x, shape of x) = x"""

    def source(self, op: PatternBuilder, x: Any, shape: Any) -> Any:
        return op.Expand(x, shape)

    def check(self, m: Match, x: Ref, shape: Ref) -> Refusal | None:
        return None if m.root().shape == x.shape else Refusal("the shape grows")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, shape: Ref) -> Any:
        return x


class DropWhere(_Elimination):
    """Where(true, x, y) = x, and Where(false, x, y) = y"""

    def source(self, op: PatternBuilder, condition: Const, x: Any, y: Any) -> Any:
        return op.Where(condition, x, y)

    def check(self, m: Match, condition: Ref, x: Ref, y: Ref) -> Refusal | None:
        chosen = uniform(condition)
        if chosen is None:
            return Refusal("the condition is not the same everywhere")
        shape = x.shape if chosen else y.shape
        return None if m.root().shape == shape else Refusal("the result is broadcast to a larger shape")

    def target(self, op: ReplacementBuilder, m: Match, condition: Ref, x: Ref, y: Ref) -> Any:
        return x if uniform(condition) else y


class DropPool(_Elimination):
    """MaxPool(x, kernel 1, stride 1) = x, and so for AveragePool"""

    def source(self, op: PatternBuilder, x: Any) -> Any:
        return op.any_of({"MaxPool", "AveragePool"})(
            x, kernel_shape=op.attr("kernel", ()), strides=op.attr("strides", ())
        )

    def check(self, m: Match, x: Ref) -> Refusal | None:
        if any(size != 1 for size in (*m.attr("kernel"), *m.attr("strides"))):
            return Refusal("the kernel or the stride is larger than 1")
        return None if m.root().shape == x.shape else Refusal("the input is padded")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref) -> Any:
        return x


class DropReduce(_Elimination):
    """Reduce(x, axes) = Reshape(x) for a sum, mean, product, maximum or minimum over axes of size 1"""

    def source(self, op: PatternBuilder, x: Any, axes: Maybe) -> Any:
        return op.any_of({"ReduceSum", "ReduceMean", "ReduceProd", "ReduceMax", "ReduceMin"})(x, axes)

    def check(self, m: Match, x: Ref, axes: Ref | None) -> Refusal | None:
        return None if m.root().type.size == x.type.size else Refusal("the axes have more than one element")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, axes: Ref | None) -> Any:
        return reshape(op, x, m.root().shape)


def _lossless(source: int, target: int) -> bool:
    numbers = helper.get_all_tensor_dtypes()
    if source not in numbers or target not in numbers:
        return False
    kinds = [np.dtype(helper.tensor_dtype_to_np_dtype(dtype)) for dtype in (source, target)]
    if any(kind.kind not in "biuf" for kind in kinds):
        return False
    # numpy calls int64 -> float64 safe although a double holds 53 bits.
    if kinds[0].kind in "iu" and kinds[1].kind == "f":
        return kinds[0].itemsize * 8 <= np.finfo(kinds[1]).nmant + 1
    return bool(np.can_cast(kinds[0], kinds[1], "safe"))


RULES = (
    DropIdentity, DropDropout, DropSingleOperand, DropCast, ComposeCasts, AddZero, SubZero, MulOne, DivOne, PowOne,
    DropPad, DropExpand, DropWhere, DropPool, DropReduce,
)  # fmt: skip
