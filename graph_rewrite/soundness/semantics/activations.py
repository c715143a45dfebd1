"""The semantics of activations: functions of one number, and functions made of additions, products and maxima."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from graph_rewrite.soundness.domains.domain import Array, Unsupported
from graph_rewrite.soundness.semantics.algebra import power
from graph_rewrite.soundness.semantics.call import Call, Semantics, Tensor
from graph_rewrite.soundness.semantics.reductions import minimum

_PLAIN = (
    "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Sign", "Floor", "Ceil", "Round", "Softplus", "Softsign", "Sin",
    "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip
"""Functions of one number, without attributes."""
_WITH_ATTRIBUTES = ("Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink")


def _function(name: str) -> Semantics:
    return lambda call: call.domain.function(name, [call.array(0)])


def _keyed(name: str) -> Semantics:
    """A function of one number that is another for other attributes."""

    def semantics(call: Call) -> Array:
        attrs = sorted((key, value) for key, value in call.attrs.items())
        return call.domain.function(f"{name} {attrs}" if attrs else name, [call.array(0)])

    return semantics


def _relu(call: Call) -> Array:
    return call.domain.maximum([call.array(0), call.rational(0)])


def _leaky_relu(call: Call) -> Array:
    return _leaky(call, call.array(0), call.attr("alpha", 0.01))


def _leaky(call: Call, x: Array, slope: Array) -> Array:
    domain, zero = call.domain, call.rational(0)
    return domain.add(domain.maximum([x, zero]), domain.mul(slope, minimum(domain, [x, zero])))


def _abs(call: Call) -> Array:
    x = call.array(0)
    return call.domain.maximum([x, call.domain.neg(x)])


def _clip(call: Call) -> Array:
    low, high = call.maybe(1), call.maybe(2)
    if call.opset < 11:
        low, high = (call.number(float(call.attrs[k])) if k in call.attrs else None for k in ("min", "max"))
    return _clipped(call, call.array(0), low, high)


def _clipped(call: Call, x: Array, low: Array | None, high: Array | None) -> Array:
    x = x if low is None else call.domain.maximum([x, low])
    return x if high is None else minimum(call.domain, [x, high])


def _hard_sigmoid(call: Call, alpha: Array, beta: Array) -> Array:
    bent = call.domain.add(call.domain.mul(alpha, call.array(0)), beta)
    return _clipped(call, bent, call.rational(0), call.rational(1))


def _hard_swish(call: Call) -> Array:
    gate = _hard_sigmoid(call, call.rational(Fraction(1, 6)), call.rational(Fraction(1, 2)))
    return call.domain.mul(call.array(0), gate)


def swish(call: Call, alpha: float) -> Array:
    x = call.array(0)
    return call.domain.mul(x, call.domain.function("Sigmoid", [call.domain.mul(call.attr("alpha", alpha), x)]))


def _mish(call: Call) -> Array:
    x, domain = call.array(0), call.domain
    return domain.mul(x, domain.function("Tanh", [domain.function("Softplus", [x])]))


def gelu_of(call: Call, x: Array, approximate: bool) -> Array:
    domain, half, one = call.domain, call.rational(Fraction(1, 2)), call.rational(1)
    if approximate:
        slope = domain.array([domain.literal(Fraction(1), "sqrt(2/pi)")], ())
        bent = domain.add(x, domain.mul(call.rational(Fraction(44715, 10**6)), power(call, x, 3)))
        gate = domain.function("Tanh", [domain.mul(slope, bent)])
    else:
        gate = domain.function("Erf", [domain.mul(x, call.root(Fraction(1, 2)))])
    return domain.mul(domain.mul(half, x), domain.add(one, gate))


def _gelu(call: Call) -> Array:
    return gelu_of(call, call.array(0), call.attrs.get("approximate", "none") == "tanh")


def _pow(call: Call) -> Array:
    x, domain = call.array(0), call.domain
    exponent = _exponent(call.inputs[1])
    if exponent is None:
        return domain.function("Pow", [x, call.array(1)])
    shape = np.broadcast_shapes(x.shape, call.array(1).shape)
    doubled = exponent * 2
    root = domain.function("Sqrt", [x]) if doubled.numerator % 2 else None
    whole = power(call, x if root is None else root, int(exponent if root is None else doubled))
    return np.broadcast_to(whole, shape)


def _exponent(tensor: Tensor | None) -> Fraction | None:
    """The small whole or half number that a constant exponent is everywhere; None where it is another or not known."""
    if tensor is None or tensor.values is None or not tensor.values.size:
        return None
    first = float(tensor.values.reshape(-1)[0])
    fits = abs(first) <= 8 and (2 * first).is_integer() and bool((tensor.values == first).all())
    return Fraction(first) if fits else None


def activated(call: Call, result: Array) -> Array:
    """Apply the function that the attribute `activation` of a fused operator names to its result."""
    name, params = call.attrs.get("activation", ""), [call.number(p) for p in call.attrs.get("activation_params", ())]
    if name == "Relu":
        return call.domain.maximum([result, call.rational(0)])
    if name == "LeakyRelu":
        return _leaky(call, result, params[0])
    if name == "Clip":
        return _clipped(call, result, params[0], params[1])
    if name in ("Sigmoid", "Tanh"):
        return call.domain.function(name, [result])
    if name:
        raise Unsupported(f"{call.op} with the activation {name}")
    return result


ACTIVATIONS: dict[str, Semantics] = {
    **{name: _function(name) for name in _PLAIN},
    **{name: _keyed(name) for name in _WITH_ATTRIBUTES},
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "PRelu": lambda c: _leaky(c, c.array(0), c.array(1)),
    "Abs": _abs,
    "Clip": _clip,
    "HardSigmoid": lambda c: _hard_sigmoid(c, c.attr("alpha", 0.2), c.attr("beta", 0.5)),
    "HardSwish": _hard_swish,
    "Swish": lambda c: swish(c, 1.0),
    "Mish": _mish,
    "Gelu": _gelu,
    "Pow": _pow,
}
