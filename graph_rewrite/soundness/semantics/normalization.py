"""The semantics of normalisations: of layers, of instances, by the root mean square."""

from __future__ import annotations

from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.semantics.call import Call, Semantics
from graph_rewrite.soundness.semantics.reductions import divide, mean_of, subtract


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


def _instance_normalization(call: Call) -> Array:
    x = call.array(0)
    normal = _normalised(call, x, tuple(range(2, x.ndim)), call.attr("epsilon", 1e-5))[0]
    along = (-1, *(1,) * (x.ndim - 2))
    return _scaled(call, normal, call.array(1).reshape(along), call.array(2).reshape(along))


def skip_layer_normalization(call: Call) -> tuple[Array, ...]:
    domain = call.domain
    added = domain.add(call.array(0), call.array(1))
    bias = call.maybe(4)
    added = added if bias is None else domain.add(added, bias)
    normal, mean, inverse = _normalised(call, added, (added.ndim - 1,), call.attr("epsilon", 1e-12))
    return (_scaled(call, normal, call.array(2), call.maybe(3)), mean, inverse, added)[: call.outputs]


NORMALIZATIONS: dict[str, Semantics] = {
    "LayerNormalization": _layer_normalization,
    "RMSNormalization": _rms_normalization,
    "InstanceNormalization": _instance_normalization,
}
