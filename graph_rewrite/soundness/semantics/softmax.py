"""Softmax over a domain: exp(x - m) / sum of exp(x - m), where m is the largest element of the row."""

from __future__ import annotations

import math

import numpy as np

from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.semantics.call import Call
from graph_rewrite.soundness.semantics.reductions import divide, max_of, subtract, sum_of


def softmax_over(call: Call, x: Array, axis: int) -> Array:
    """Softmax of x along one axis."""
    domain = call.domain
    if not x.size:
        return x
    powers = domain.function("Exp", [subtract(domain, x, max_of(call, x, (axis % x.ndim,)))])
    return divide(domain, powers, sum_of(call, powers, (axis % x.ndim,)))


def _rows(call: Call) -> tuple[Array, int]:
    """The input and the axis; before opset 13 all axes from `axis` on together are one."""
    x = call.array(0)
    if call.opset >= 13:
        return x, call.attrs.get("axis", -1)
    return x.reshape(math.prod(x.shape[: call.attrs.get("axis", 1) % x.ndim]), -1), -1


def softmax(call: Call) -> Array:
    """The operator Softmax."""
    return softmax_over(call, *_rows(call)).reshape(call.array(0).shape)


def hardmax(call: Call) -> Array:
    """The operator Hardmax: each element is a function of its row."""
    x, axis = _rows(call)
    row = [np.take(x, i, axis=axis) for i in range(x.shape[axis])]
    parts = [call.domain.function(f"Hardmax {i}", row) for i in range(len(row))]
    return np.stack(parts, axis=axis).reshape(call.array(0).shape)


def log_softmax(call: Call) -> Array:
    """The operator LogSoftmax: x - m - log(sum of exp(x - m))."""
    domain = call.domain
    x, axis = _rows(call)
    centred = subtract(domain, x, max_of(call, x, (axis % x.ndim,)))
    sums = sum_of(call, domain.function("Exp", [centred]), (axis % x.ndim,))
    return np.asarray(subtract(domain, centred, domain.function("Log", [sums]))).reshape(call.array(0).shape)
