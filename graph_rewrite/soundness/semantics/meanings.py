"""What operators mean over a domain: ONNX's own, and those of com.microsoft that rules use.

Activations, normalizations and attention are bodies of simpler operators, after ONNX's operator documentation and ONNX
Runtime's; functions without a body are the domain's.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from onnx import TensorProto

from graph_rewrite.operators import contrib, nchwc
from graph_rewrite.soundness.domains.prime_field import Array, Unsupported
from graph_rewrite.soundness.semantics.algebra import ALGEBRA, FUSED_MATMUL, conv, power
from graph_rewrite.soundness.semantics.attention import attention, multi_head_attention
from graph_rewrite.soundness.semantics.blocked import blocked
from graph_rewrite.soundness.semantics.evaluation import Call, Tensor
from graph_rewrite.soundness.semantics.moves import MOVES
from graph_rewrite.soundness.semantics.reductions import Meaning, divide, mean_of, minimum, subtract
from graph_rewrite.soundness.semantics.softmax import hardmax, log_softmax, softmax

_PLAIN = (
    "Sigmoid", "Tanh", "Erf", "Exp", "Log", "Sqrt", "Sign", "Floor", "Ceil", "Round", "Softplus", "Softsign", "Sin",
    "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh",
)  # fmt: skip
"""Functions of one number, without attributes."""
_WITH_ATTRIBUTES = ("Elu", "Selu", "Celu", "ThresholdedRelu", "Shrink")


def _function(name: str) -> Meaning:
    return lambda call: call.domain.function(name, [call.array(0)])


def _keyed(name: str) -> Meaning:
    """A function of one number that is another for other attributes."""

    def meaning(call: Call) -> Array:
        attrs = sorted((key, value) for key, value in call.attrs.items())
        return call.domain.function(f"{name} {attrs}" if attrs else name, [call.array(0)])

    return meaning


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


def _swish(call: Call, alpha: float) -> Array:
    x = call.array(0)
    return call.domain.mul(x, call.domain.function("Sigmoid", [call.domain.mul(call.attr("alpha", alpha), x)]))


def _mish(call: Call) -> Array:
    x, domain = call.array(0), call.domain
    return domain.mul(x, domain.function("Tanh", [domain.function("Softplus", [x])]))


def _gelu_of(call: Call, x: Array, approximate: bool) -> Array:
    domain, half, one = call.domain, call.rational(Fraction(1, 2)), call.rational(1)
    if approximate:
        slope = domain.array([domain.literal(Fraction(1), "sqrt(2/pi)")], ())
        bent = domain.add(x, domain.mul(call.rational(Fraction(44715, 10**6)), power(call, x, 3)))
        gate = domain.function("Tanh", [domain.mul(slope, bent)])
    else:
        gate = domain.function("Erf", [domain.mul(x, call.root(Fraction(1, 2)))])
    return domain.mul(domain.mul(half, x), domain.add(one, gate))


def _gelu(call: Call) -> Array:
    return _gelu_of(call, call.array(0), call.attrs.get("approximate", "none") == "tanh")


def _biased(call: Call) -> Array:
    bias = call.maybe(1)
    return call.array(0) if bias is None else call.domain.add(call.array(0), bias)


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


def _normalised(call: Call, x: Array, axes: tuple[int, ...], epsilon: Array, centred: bool = True) -> tuple[Array, ...]:
    """x with mean 0 where `centred` and mean square 1; the mean, and the inverse deviation."""
    domain = call.domain
    mean = mean_of(call, x, axes)
    deviations = subtract(domain, x, mean) if centred else x
    variance = mean_of(call, domain.mul(deviations, deviations), axes)
    deviation = domain.function("Sqrt", [domain.add(variance, epsilon)])
    return divide(domain, deviations, deviation), mean, domain.reciprocal(deviation)


def _scaled(call: Call, x: Array, scale: Array, bias: Array | None) -> Array:
    scaled = call.domain.mul(x, scale)
    return scaled if bias is None else call.domain.add(scaled, bias)


def _layer_normalization(call: Call) -> tuple[Array, ...]:
    x = call.array(0)
    axes = tuple(range(call.attrs.get("axis", -1) % x.ndim, x.ndim))
    normal, mean, inverse = _normalised(call, x, axes, call.attr("epsilon", 1e-5))
    return (_scaled(call, normal, call.array(1), call.maybe(2)), mean, inverse)[: call.outputs]


def _rms_normalization(call: Call) -> Array:
    x = call.array(0)
    axes = tuple(range(call.attrs.get("axis", -1) % x.ndim, x.ndim))
    normal = _normalised(call, x, axes, call.attr("epsilon", 1e-5), centred=False)[0]
    return _scaled(call, normal, call.array(1), None)


def _skip_layer_normalization(call: Call) -> tuple[Array, ...]:
    domain = call.domain
    added = domain.add(call.array(0), call.array(1))
    bias = call.maybe(4)
    added = added if bias is None else domain.add(added, bias)
    normal, mean, inverse = _normalised(call, added, (added.ndim - 1,), call.attr("epsilon", 1e-12))
    return (_scaled(call, normal, call.array(2), call.maybe(3)), mean, inverse, added)[: call.outputs]


def _instance_normalization(call: Call) -> Array:
    x = call.array(0)
    normal = _normalised(call, x, tuple(range(2, x.ndim)), call.attr("epsilon", 1e-5))[0]
    along = (-1, *(1,) * (x.ndim - 2))
    return _scaled(call, normal, call.array(1).reshape(along), call.array(2).reshape(along))


def _fused_conv(call: Call) -> Array:
    result, z = conv(call), call.maybe(3)
    return _activated(call, result if z is None else call.domain.add(result, z))


def _fused_gemm(call: Call) -> Array:
    return _activated(call, ALGEBRA["Gemm"](call))


def _activated(call: Call, result: Array) -> Array:
    """What the attribute `activation` of a fused operator makes of its result."""
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


def _compare(function: Callable[[Call], Array]) -> Meaning:
    return lambda call: Tensor(function(call), TensorProto.BOOL)


def _holds(call: Call, name: str) -> Array:
    """A property of a number that the reals don't know, uninterpreted."""
    found = call.domain.function(name, [call.array(0)])
    return call.domain.equal(found, np.broadcast_to(call.rational(1), found.shape))


def _less(call: Call, first: int, second: int) -> Array:
    return call.domain.less(*np.broadcast_arrays(call.array(first), call.array(second)))


def _or(call: Call) -> Array:
    domain = call.domain
    a, b = np.broadcast_arrays(call.condition(0), call.condition(1))
    return domain.negation(domain.both(domain.negation(a), domain.negation(b)))


def _xor(call: Call) -> Array:
    domain = call.domain
    a, b = np.broadcast_arrays(call.condition(0), call.condition(1))
    return domain.both(_or(call), domain.negation(domain.both(a, b)))


STANDARD: dict[str, Meaning] = {
    **ALGEBRA,
    **MOVES,
    **{name: _function(name) for name in _PLAIN},
    **{name: _keyed(name) for name in _WITH_ATTRIBUTES},
    "Relu": _relu,
    "LeakyRelu": _leaky_relu,
    "PRelu": lambda c: _leaky(c, c.array(0), c.array(1)),
    "Abs": _abs,
    "Clip": _clip,
    "HardSigmoid": lambda c: _hard_sigmoid(c, c.attr("alpha", 0.2), c.attr("beta", 0.5)),
    "HardSwish": _hard_swish,
    "Swish": lambda c: _swish(c, 1.0),
    "Mish": _mish,
    "Gelu": _gelu,
    "Pow": _pow,
    "Softmax": softmax,
    "LogSoftmax": log_softmax,
    "Hardmax": hardmax,
    "IsNaN": _compare(lambda c: _holds(c, "IsNaN")),
    "IsInf": _compare(lambda c: _holds(c, f"IsInf {sorted(c.attrs.items())}")),
    "Mod": lambda c: c.domain.function(f"Mod {c.attrs.get('fmod', 0)}", np.broadcast_arrays(c.array(0), c.array(1))),
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "InstanceNormalization": _instance_normalization,
    "Attention": attention,
    "Less": _compare(lambda c: _less(c, 0, 1)),
    "Greater": _compare(lambda c: _less(c, 1, 0)),
    "GreaterOrEqual": _compare(lambda c: c.domain.negation(_less(c, 0, 1))),
    "LessOrEqual": _compare(lambda c: c.domain.negation(_less(c, 1, 0))),
    "Equal": _compare(lambda c: c.domain.equal(*np.broadcast_arrays(c.array(0), c.array(1)))),
    "Not": _compare(lambda c: c.domain.negation(c.condition(0))),
    "And": _compare(lambda c: c.domain.both(*np.broadcast_arrays(c.condition(0), c.condition(1)))),
    "Or": _compare(_or),
    "Xor": _compare(_xor),
}
CONTRIB: dict[str, Meaning] = {
    "Gelu": lambda c: _gelu_of(c, c.array(0), False),
    "BiasGelu": lambda c: _gelu_of(c, _biased(c), False),
    "FastGelu": lambda c: _gelu_of(c, _biased(c), True),
    "QuickGelu": lambda c: _swish(c, 1.702),
    "SkipLayerNormalization": _skip_layer_normalization,
    "FusedMatMul": FUSED_MATMUL,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "MultiHeadAttention": multi_head_attention,
}


def meaning_of(op: str, domain: str) -> Meaning | None:
    """What an operator means; None for one without an exact meaning."""
    if domain == nchwc.DOMAIN:
        return blocked if nchwc.is_modelled(op) else None
    if domain in ("", "ai.onnx"):
        return STANDARD.get(op)
    return CONTRIB.get(op) if domain == contrib.DOMAIN else None
