"""The semantics of quantisation: a division, a rounding to the nearest integer (halves to the even one), a shift, and
the bounds of the integers."""

from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.soundness.domains.domain import Array, Unsupported
from graph_rewrite.soundness.semantics.call import Call, Semantics, Tensor
from graph_rewrite.soundness.semantics.reductions import minimum

_INTEGERS = (TensorProto.UINT8, TensorProto.INT8, TensorProto.UINT16, TensorProto.INT16)


def _quantize(call: Call) -> Tensor:
    zero = call.inputs[2] if call.has(2) else None
    dtype = int(call.attrs.get("output_dtype", 0)) or (TensorProto.UINT8 if zero is None else zero.dtype)
    if dtype not in _INTEGERS:
        raise Unsupported(f"{call.op} to other numbers than integers")
    x, scale, shift = call.array(0), _along_axis(call, 1), _along_axis(call, 2)
    domain, kind = call.domain, np.iinfo(helper.tensor_dtype_to_np_dtype(dtype))
    steps = domain.function("Round", [domain.mul(x, domain.reciprocal(scale))])
    shifted = domain.add(steps, shift)
    bounded = minimum(domain, [domain.maximum([shifted, call.rational(kind.min)]), call.rational(kind.max)])
    return Tensor(bounded, dtype)


def _dequantize(call: Call) -> Tensor:
    scale = call.inputs[1]
    if scale is None:
        raise Unsupported(f"{call.op} without a scale")
    domain = call.domain
    shifted = domain.add(call.array(0), domain.neg(_along_axis(call, 2)))
    return Tensor(domain.mul(shifted, _along_axis(call, 1)), scale.dtype)


def _along_axis(call: Call, index: int) -> Array:
    """Return a scale or zero point, a number or one per place along the axis, as it broadcasts with the data."""
    if not call.has(index):
        return call.rational(0)
    found, rank = call.array(index), call.first.array.ndim
    if call.attrs.get("block_size", 0) or found.ndim > 1:
        raise Unsupported(f"{call.op} in blocks")
    if found.ndim == 0:
        return found
    axis = int(call.attrs.get("axis", 1)) % rank
    return found.reshape([-1 if place == axis else 1 for place in range(rank)])


QUANTIZATION: dict[str, Semantics] = {"QuantizeLinear": _quantize, "DequantizeLinear": _dequantize}
"""By the operator's name."""
