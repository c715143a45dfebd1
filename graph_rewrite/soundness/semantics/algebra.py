"""The semantics of operators that add and multiply: element-wise, products, convolution, pooling."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
from onnx import TensorProto

from graph_rewrite.soundness.domains.domain import Array, Unsupported
from graph_rewrite.soundness.semantics.call import Call, Semantics
from graph_rewrite.soundness.semantics.reductions import (
    REDUCTIONS,
    divide,
    max_of,
    mean_of,
    minimum,
    real_only,
    subtract,
    sum_of,
    total,
)  # fmt: skip
from graph_rewrite.soundness.semantics.sliding_windows import BEYOND, windows


def product(call: Call, a: Array, b: Array) -> Array:
    """numpy.matmul over the domain."""
    if a.ndim == 1 or b.ndim == 1:
        left, right = (a[None] if a.ndim == 1 else a), (b[:, None] if b.ndim == 1 else b)
        result = product(call, left, right)
        result = result[..., 0] if b.ndim == 1 else result
        return np.asarray(result if a.ndim > 1 else (result[..., 0] if b.ndim == 1 else result[..., 0, :]))
    domain = call.domain
    terms = [domain.mul(a[..., :, k, None], b[..., None, k, :]) for k in range(a.shape[-1])]
    shape = (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2], b.shape[-1])
    return np.asarray(functools.reduce(domain.add, terms) if terms else np.broadcast_to(call.rational(0), shape))


def _div(call: Call) -> Array:
    if not call.first.is_float:
        return call.domain.function("Quotient", np.broadcast_arrays(call.array(0), call.array(1)))
    return divide(call.domain, call.array(0), call.array(1))


def _mean(call: Call) -> Array:
    real_only(call)
    args = call.arrays()
    return call.domain.mul(functools.reduce(call.domain.add, args), call.rational(Fraction(1, len(args))))


def _gemm(call: Call) -> Array:
    a, b, c = call.array(0), call.array(1), call.maybe(2)
    a, b = (a.T if call.attrs.get("transA", 0) else a), (b.T if call.attrs.get("transB", 0) else b)
    result = call.domain.mul(call.attr("alpha", 1.0), product(call, a, b))
    return result if c is None else call.domain.add(result, call.domain.mul(call.attr("beta", 1.0), c))


def fused_matmul(call: Call) -> Array:
    a, b = call.array(0), call.array(1)
    if call.attrs.get("transBatchA", 0) or call.attrs.get("transBatchB", 0):
        raise Unsupported("FusedMatMul with transposed batches")
    a = np.swapaxes(a, -1, -2) if call.attrs.get("transA", 0) else a
    b = np.swapaxes(b, -1, -2) if call.attrs.get("transB", 0) else b
    return call.domain.mul(call.attr("alpha", 1.0), product(call, a, b))


def conv(call: Call) -> Array:
    """Conv over any number of spatial axes: windows times filters, group by group."""
    x, w, bias, groups = call.array(0), call.array(1), call.maybe(2), call.attrs.get("group", 1)
    seen, shape = windows(call.attrs, x.shape[2:], w.shape[2:])
    batch, filters = x.shape[0], w.shape[0]
    flat = padded(x, call.rational(0))
    patches = flat[..., seen]  # [batch, channels, windows, kernel elements]
    if x.shape[1] != groups * w.shape[1] or filters % groups:
        raise Unsupported("the channels of Conv do not fit its groups")
    patches = np.moveaxis(patches, -1, 2).reshape(batch, groups, w.shape[1] * seen.shape[1], len(seen))
    taps = w.reshape(groups, filters // groups, w.shape[1] * seen.shape[1])
    result = product(call, taps, patches).reshape(batch, filters, *shape)
    return result if bias is None else call.domain.add(result, bias.reshape(-1, *(1,) * len(shape)))


def padded(x: Array, value: Array) -> Array:
    """Spatial axes flattened, with `value` at the indices OUTSIDE and BEYOND."""
    flat = x.reshape(*x.shape[:2], -1)
    edge = np.broadcast_to(value, (*x.shape[:2], 2)).astype(flat.dtype)
    return np.concatenate([flat, edge], axis=-1)


def _average_pool(call: Call) -> Array:
    x, domain = call.array(0), call.domain
    seen, shape = windows(call.attrs, x.shape[2:], call.attrs["kernel_shape"])
    counted = seen != BEYOND if call.attrs.get("count_include_pad", 0) else seen >= 0
    if not counted.any(axis=-1).all():
        raise Unsupported("a window of AveragePool sees nothing but padding")
    patches = padded(x, call.rational(0))[..., seen]
    sums = total(domain, patches, (patches.ndim - 1,), call.rational(0))[..., 0]
    shares = domain.array([domain.literal(Fraction(1, int(n))) for n in counted.sum(axis=-1)], (len(seen),))
    return domain.mul(sums, shares).reshape(*x.shape[:2], *shape)


def _max_pool(call: Call) -> Array:
    if call.outputs > 1:
        raise Unsupported("indices of MaxPool")
    x = call.array(0)
    seen, shape = windows(call.attrs, x.shape[2:], call.attrs["kernel_shape"])
    if not (seen >= 0).any(axis=-1).all():
        raise Unsupported("a window of MaxPool sees nothing but padding")
    patches = padded(x, call.number(-math.inf))[..., seen]
    return call.domain.maximum(list(np.moveaxis(patches, -1, 0))).reshape(*x.shape[:2], *shape)


def _over_image(function: Callable[[Call, Array, tuple[int, ...]], Array]) -> Semantics:
    def semantics(call: Call) -> Array:
        x = call.array(0)
        return function(call, x, tuple(range(2, x.ndim)))

    return semantics


def _batch_normalization(call: Call) -> Array:
    if call.attrs.get("training_mode", 0):
        raise Unsupported("BatchNormalization in training")
    x, domain = call.array(0), call.domain
    along = (-1, *(1,) * (x.ndim - 2))
    scale, bias, mean, variance = (call.array(i).reshape(along) for i in range(1, 5))
    deviation = domain.function("Sqrt", [domain.add(variance, call.attr("epsilon", 1e-5))])
    return domain.add(domain.mul(subtract(domain, x, mean), divide(domain, scale, deviation)), bias)


def power(call: Call, x: Array, exponent: int) -> Array:
    """x to an integer, by repeated multiplication."""
    domain = call.domain
    if exponent < 0:
        return domain.reciprocal(power(call, x, -exponent))
    result = np.broadcast_to(call.rational(1), x.shape)
    for _ in range(exponent):
        result = domain.mul(result, x)
    return np.asarray(result)


def _einsum(call: Call) -> Array:
    equation = call.attrs["equation"].replace(" ", "")
    sources, _, target = equation.partition("->")
    names = sources.split(",")
    if "..." in equation or "->" not in equation or any(len(set(n)) != len(n) for n in names):
        raise Unsupported(f"Einsum {equation}")
    letters = [*target, *sorted({c for n in names for c in n} - set(target))]
    aligned = []
    for name, x in zip(names, call.arrays(), strict=True):
        order = [c for c in letters if c in name]
        moved = np.transpose(x, [name.index(c) for c in order])
        aligned.append(np.expand_dims(moved, tuple(i for i, c in enumerate(letters) if c not in name)))
    full = functools.reduce(call.domain.mul, aligned)
    axes = tuple(range(len(target), len(letters)))
    return np.squeeze(sum_of(call, full, axes), axis=axes)


def _cumsum(call: Call) -> Array:
    axis = int(call.known(1).reshape(-1)[0])
    parts = list(np.moveaxis(call.array(0), axis, 0))
    if call.attrs.get("exclusive", 0) or call.attrs.get("reverse", 0):
        raise Unsupported("CumSum that is exclusive or reversed")
    for i in range(1, len(parts)):
        parts[i] = call.domain.add(parts[i - 1], parts[i])
    return np.moveaxis(np.stack(parts), 0, axis)


def bitwise_not(call: Call) -> Array:
    """-x - 1 of signed integers, 2^n - 1 - x of unsigned ones."""
    bits: dict[int, int] = {
        TensorProto.UINT8: 8,
        TensorProto.UINT16: 16,
        TensorProto.UINT32: 32,
        TensorProto.UINT64: 64,
    }
    width = bits.get(call.first.dtype)
    return subtract(call.domain, call.rational(-1 if width is None else 2**width - 1), call.array(0))


ALGEBRA: dict[str, Semantics] = {
    **REDUCTIONS,
    "Add": lambda c: c.domain.add(c.array(0), c.array(1)),
    "Sub": lambda c: subtract(c.domain, c.array(0), c.array(1)),
    "Mul": lambda c: c.domain.mul(c.array(0), c.array(1)),
    "Div": _div,
    "Neg": lambda c: c.domain.neg(c.array(0)),
    "Reciprocal": lambda c: c.domain.reciprocal(c.array(0)),
    "Sum": lambda c: functools.reduce(c.domain.add, c.arrays()),
    "Mean": _mean,
    "Max": lambda c: c.domain.maximum(c.arrays()),
    "Min": lambda c: minimum(c.domain, c.arrays()),
    "MatMul": lambda c: product(c, c.array(0), c.array(1)),
    "Gemm": _gemm,
    "Conv": conv,
    "AveragePool": _average_pool,
    "MaxPool": _max_pool,
    "GlobalAveragePool": _over_image(mean_of),
    "GlobalMaxPool": _over_image(max_of),
    "BatchNormalization": _batch_normalization,
    "Einsum": _einsum,
    "CumSum": _cumsum,
    "BitwiseNot": bitwise_not,
}
