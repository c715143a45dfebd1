"""Steps on single elements: activations, arithmetic, comparisons, choices, types."""

from __future__ import annotations

import numpy as np

from tests.fuzzing.optimisations.builder import BOOL, FLOAT, HALF, INT8, INT32, INT64, UINT8, Builder, Unfit, Value
from tests.fuzzing.optimisations.registry import anything, booleans, floats, integers, step, tensors, wide_integers

_SAFE = (
    "Relu", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "Tanh", "Softplus", "Softsign", "HardSigmoid", "HardSwish",
    "Mish", "Gelu", "Erf", "Abs", "Neg", "Sin", "Cos", "Atan", "Identity", "ThresholdedRelu", "Swish",
)  # fmt: skip
_COMMON = ("Relu", "Sigmoid", "Tanh", "Neg", "LeakyRelu", "Identity", "Gelu", "HardSwish", "Clip")


@step(floats, 3.0)
def activation(b: Builder, x: Value) -> Value:
    name = b.choice(_COMMON if b.chance(0.6) else _SAFE)
    if name == "Clip":
        return b.op("Clip", x, b.constant(-0.5, x.dtype), b.constant(b.choice((0.5, 6.0)), x.dtype))
    attrs = {"alpha": 0.25} if name in ("LeakyRelu", "Elu") and b.chance(0.5) else {}
    if name == "Gelu" and b.chance(0.4):
        attrs = {"approximate": "tanh"}
    return b.op(name, x, **attrs)


@step(floats)
def function_of_positive(b: Builder, x: Value) -> Value:
    base = b.op("Add", b.op("Abs", x), b.constant(b.choice((0.5, 1.0)), x.dtype))
    return b.op(b.choice(("Sqrt", "Log", "Reciprocal")), base)


@step(floats)
def exponential(b: Builder, x: Value) -> Value:
    return b.op("Exp", b.op("Neg", b.op("Abs", x)))


@step(floats, 0.4)
def rounding(b: Builder, x: Value) -> Value:
    return b.op(b.choice(("Floor", "Ceil", "Round", "Sign")), x)


@step(floats, 4.0)
def arithmetic(b: Builder, x: Value) -> Value:
    other = b.like(x)
    name = b.choice(("Add", "Mul", "Sub", "Add", "Mul", "Div", "Max", "Min", "Sum", "Mean"))
    if name == "Div":
        other = b.positive(*(() if b.chance(0.5) else other.dims), dtype=x.dtype)
        return b.op("Div", x, other)
    pair = (x, other) if b.chance(0.7) else (other, x)
    more = [b.like(x)] if name in ("Sum", "Mean", "Max") and b.chance(0.5) else []
    return b.op(name, *pair, *more)


@step(floats, 2.0)
def neutral(b: Builder, x: Value) -> Value:
    """Arithmetic that changes nothing or little: with zeros and ones, twice the opposite, casts there and back."""
    one, zero = b.constant(np.ones(()), x.dtype), b.constant(np.zeros(()), x.dtype)
    match b.rng.randrange(8):
        case 0:
            return b.op("Mul", x, one)
        case 1:
            return b.op(b.choice(("Add", "Sub")), x, zero)
        case 2:
            return b.op("Div", x, one)
        case 3:
            return b.op("Neg", b.op("Neg", x))
        case 4:
            return b.op("Pow", x, b.constant(b.choice((1.0, 2.0)), FLOAT))
        case 5:
            return b.op("Reciprocal", b.op("Reciprocal", b.op("Add", b.op("Abs", x), one)))
        case 6:
            return b.op("Clip", b.op("Clip", x, zero), zero, one)
        case _:
            return b.op(b.choice(("Add", "Sub")), x, b.op("Neg", b.like(x)))


@step(floats)
def powers(b: Builder, x: Value) -> Value:
    base = b.op("Abs", x)
    return b.op("Pow", base, b.constant(b.choice((0.5, 2.0, 3.0, 1.0)), x.dtype))


@step(floats, 2.0)
def distributed(b: Builder, x: Value) -> Value:
    """A common factor or divisor, in a sum or in front of it."""
    y, c = b.like(x, 0.0), b.positive(*(() if b.chance(0.5) else (x.dim(-1),)), dtype=x.dtype)
    op, plus = b.choice(("Mul", "Div")), b.choice(("Add", "Sub"))
    if b.chance(0.5):
        return b.op(plus, b.op(op, x, c), b.op(op, y, c))
    return b.op(op, b.op(plus, x, y), c)


@step(tensors, 0.7)
def slopes(b: Builder, x: Value) -> Value:
    return b.op("PRelu", x, b.positive(x.dim(-1), dtype=x.dtype))


@step(floats, 0.5)
def dropped(b: Builder, x: Value) -> Value:
    return b.op("Dropout", x)


@step(floats, 2.0)
def gelu_by_hand(b: Builder, x: Value) -> Value:
    """Gelu as exporters write it: by Erf or by Tanh, with the half in different places."""
    half, one = b.constant(0.5, x.dtype), b.constant(1.0, x.dtype)
    if b.chance(0.5):
        root = b.constant(np.sqrt(2.0), x.dtype)
        scaled = b.op("Div", x, root) if b.chance(0.5) else b.op("Mul", x, b.constant(np.sqrt(0.5), x.dtype))
        inner = b.op("Add", b.op("Erf", scaled), one)
    else:
        cube = b.op("Mul", b.op("Mul", x, x), x) if b.chance(0.5) else b.op("Pow", x, b.constant(3.0, x.dtype))
        sum = b.op("Add", x, b.op("Mul", cube, b.constant(0.044715, x.dtype)))
        inner = b.op("Add", b.op("Tanh", b.op("Mul", sum, b.constant(np.sqrt(2.0 / np.pi), x.dtype))), one)
    match b.rng.randrange(3):
        case 0:
            return b.op("Mul", b.op("Mul", x, inner), half)
        case 1:
            return b.op("Mul", x, b.op("Mul", inner, half))
        case _:
            return b.op("Mul", b.op("Mul", x, half), inner)


@step(floats)
def gated(b: Builder, x: Value) -> Value:
    """SiLU, QuickGelu or HardSwish, written out."""
    match b.rng.randrange(3):
        case 0:
            return b.op("Mul", x, b.op("Sigmoid", x))
        case 1:
            return b.op("Mul", x, b.op("Sigmoid", b.op("Mul", x, b.constant(1.702, x.dtype))))
        case _:
            return b.op("Mul", x, b.op("HardSigmoid", x, alpha=1.0 / 6.0, beta=0.5))


@step(floats, 0.5)
def of_microsoft(b: Builder, x: Value) -> Value:
    if x.dtype != FLOAT:
        raise Unfit("float32 only")
    name = b.choice(("Gelu", "QuickGelu", "FastGelu"))
    return b.op(name, x, domain="com.microsoft", type=x)


@step(anything, 1.5)
def masked(b: Builder, x: Value) -> Value:
    """A choice by a comparison, with another value or a constant."""
    other = b.like(x)
    if x.dtype == BOOL:
        return b.op("Where", x, other, x)
    compare = b.choice(("Greater", "Less", "GreaterOrEqual", "LessOrEqual", "Equal"))
    condition = b.op(compare, x, b.like(x))
    if b.chance(0.3):
        condition = b.op("Not", condition)
    zero = b.constant(np.zeros(()), x.dtype)
    return b.op("Where", condition, *((x, other) if b.chance(0.6) else (zero, x)))


@step(floats, 0.4)
def comparison(b: Builder, x: Value) -> Value:
    if b.chance(0.2):
        return b.op("IsNaN", x)
    return b.op(b.choice(("Greater", "Less", "LessOrEqual")), x, b.like(x))


@step(booleans, 2.0)
def logic(b: Builder, x: Value) -> Value:
    name = b.choice(("And", "Or", "Xor", "Not"))
    return b.op(name, x) if name == "Not" else b.op(name, x, b.like(x))


@step(integers, 2.0)
def whole_numbers(b: Builder, x: Value) -> Value:
    name = b.choice(("Add", "Sub", "Mul", "Max", "Min", "Mod", "Div", "BitwiseAnd", "BitwiseXor", "Neg", "Identity"))
    if name in ("Neg", "Identity"):
        return b.op(name, x)
    if name in ("Mod", "Div"):
        return b.op(name, x, b.constant(3, x.dtype))
    if name in ("Add", "Mul") and b.chance(0.3):
        return b.op(name, x, b.constant(int(name == "Mul"), x.dtype))
    return b.op(name, x, b.like(x))


@step(wide_integers, 0.7)
def clipped_numbers(b: Builder, x: Value) -> Value:
    low, high = b.constant(-3, x.dtype), b.constant(100, x.dtype)
    return b.op("Clip", b.op("Clip", x, low, high), b.constant(0, x.dtype), high)


@step(anything, 1.0)
def cast(b: Builder, x: Value) -> Value:
    """Another type, now and then over a third one."""
    if x.is_float:
        if b.chance(0.5):
            return b.op("Cast", b.op("Cast", x, to=b.choice((FLOAT, HALF, x.dtype))), to=x.dtype)
        return b.op("Cast", b.op("Clip", x, b.constant(-50.0, x.dtype), b.constant(50.0, x.dtype)), to=b.choice(
            (INT64, INT32, FLOAT)))  # fmt: skip
    target = b.choice((FLOAT, FLOAT, INT64, INT32))
    if target == FLOAT and x.dtype in (INT64, INT32):
        x = b.op("Mod", x, b.constant(17, x.dtype))
    return b.op("Cast", x, to=target)


@step(floats, 0.4)
def cast_like(b: Builder, x: Value) -> Value:
    return b.op("CastLike", x, b.constant(np.zeros(1), b.choice((x.dtype, FLOAT))))


@step(floats, 1.0)
def quantised(b: Builder, x: Value) -> Value:
    """A value rounded to eight bits and back."""
    if x.dtype != FLOAT:
        raise Unfit("float32 only")
    kind = b.choice((UINT8, INT8))
    scale, zero = b.constant(b.choice((0.03125, 0.0625)), FLOAT), b.constant(b.choice((0, 3)), kind)
    if b.chance(0.2) and isinstance(x.shape[0] if x.shape else 1, int):
        q, s, z = b.several("DynamicQuantizeLinear", 3, x)
        return b.op("DequantizeLinear", q, s, z)
    return b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero)
