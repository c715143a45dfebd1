"""The semantics of operators that reduce axes: sums, means, products, maxima."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from onnx import TensorProto

from graph_rewrite.soundness.domains.domain import Array, Domain, Unsupported
from graph_rewrite.soundness.semantics.call import Call, Semantics


def subtract(domain: Domain, a: Array, b: Array) -> Array:
    return domain.add(a, domain.neg(b))


def divide(domain: Domain, a: Array, b: Array) -> Array:
    return domain.mul(a, domain.reciprocal(b))


def total(domain: Domain, x: Array, axes: tuple[int, ...], zero: Array) -> Array:
    """The sum over axes, which are kept with size 1."""
    result = x
    for axis in axes:
        parts = [np.take(result, [i], axis=axis) for i in range(result.shape[axis])]
        shape = tuple(1 if i == axis else size for i, size in enumerate(result.shape))
        result = functools.reduce(domain.add, parts) if parts else np.broadcast_to(zero, shape)
    return np.asarray(result)


def axes_of(call: Call, x: Array, position: int | None = 1) -> tuple[int, ...]:
    """The axes of a reduction, non-negative; all where none are given."""
    axes = call.attrs.get("axes")
    if position is not None and call.has(position):
        axes = tuple(int(axis) for axis in call.known(position))
    if not axes:
        return () if call.attrs.get("noop_with_empty_axes", 0) else tuple(range(x.ndim))
    return tuple(sorted(int(axis) % x.ndim for axis in axes))


def keep(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    """A reduction's result, without its axes of size 1 unless they are kept."""
    return x if call.attrs.get("keepdims", 1) else np.squeeze(x, axis=axes)


def count(x: Array, axes: tuple[int, ...]) -> int:
    return math.prod(x.shape[axis] for axis in axes)


def _reduce(function: Callable[[Call, Array, tuple[int, ...]], Array]) -> Semantics:
    def semantics(call: Call) -> Array:
        x = call.first.array
        axes = axes_of(call, x)
        if call.first.dtype == TensorProto.BOOL:
            return keep(call, _of_truths(call, x, axes), axes)
        x = call.array(0)
        return keep(call, function(call, x, axes), axes)

    return semantics


def _of_truths(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    """ReduceMin, which is "all", and ReduceMax, which is "any"."""
    if call.op not in ("ReduceMin", "ReduceMax"):
        raise Unsupported(f"{call.op} of truth values")
    domain = call.domain
    moved = np.moveaxis(x, axes, range(len(axes)))
    rows = list(moved.reshape(-1, *moved.shape[len(axes) :]))
    if call.op == "ReduceMin":
        return np.expand_dims(functools.reduce(domain.both, rows), axes)
    none = functools.reduce(domain.both, [domain.negation(row) for row in rows])
    return np.expand_dims(domain.negation(none), axes)


def sum_of(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    return total(call.domain, x, axes, call.rational(0))


def mean_of(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    real_only(call)
    return call.domain.mul(sum_of(call, x, axes), call.rational(Fraction(1, count(x, axes))))


def max_of(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    moved = np.moveaxis(x, axes, range(len(axes)))
    flat = moved.reshape(-1, *moved.shape[len(axes) :])
    return np.expand_dims(call.domain.maximum(list(flat)), axes)


def min_of(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    return call.domain.neg(max_of(call, call.domain.neg(x), axes))


def _prod_of(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    moved = np.moveaxis(x, axes, range(len(axes)))
    flat = moved.reshape(-1, *moved.shape[len(axes) :])
    return np.expand_dims(functools.reduce(call.domain.mul, list(flat)), axes)


def _square_sum(call: Call, x: Array, axes: tuple[int, ...]) -> Array:
    return sum_of(call, call.domain.mul(x, x), axes)


def minimum(domain: Domain, args: list[Array]) -> Array:
    return domain.neg(domain.maximum([domain.neg(a) for a in args]))


def real_only(call: Call) -> None:
    """Raises Unsupported where the operator is applied to integers, which it rounds."""
    if not call.first.is_float:
        raise Unsupported(f"{call.op} of integers rounds")


REDUCTIONS: dict[str, Semantics] = {
    "ReduceSum": _reduce(sum_of),
    "ReduceMean": _reduce(mean_of),
    "ReduceMax": _reduce(max_of),
    "ReduceMin": _reduce(min_of),
    "ReduceProd": _reduce(_prod_of),
    "ReduceSumSquare": _reduce(_square_sum),
}
