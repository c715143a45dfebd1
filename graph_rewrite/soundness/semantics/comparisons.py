"""The semantics of comparisons and of logical operators, whose results are truth values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from graph_rewrite.soundness.domains.domain import Array
from graph_rewrite.soundness.semantics.call import Call, Semantics, Tensor


def _compare(function: Callable[[Call], Array]) -> Semantics:
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


COMPARISONS: dict[str, Semantics] = {
    "IsNaN": _compare(lambda c: _holds(c, "IsNaN")),
    "IsInf": _compare(lambda c: _holds(c, f"IsInf {sorted(c.attrs.items())}")),
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
