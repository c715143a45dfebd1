"""The semantics of data-movement operators, whose outputs hold elements of their inputs: the reference semantics run
on indices instead of elements, and the elements are gathered by the result."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.operators.evaluation import run_operator
from graph_rewrite.soundness.domains.domain import Array, Domain, Unsupported
from graph_rewrite.soundness.semantics.call import FLOATS, Call, Semantics, Tensor

_EVERY = -1
"""All inputs are data."""
_DATA: Mapping[str, tuple[int, ...]] = {
    "Transpose": (0,), "Reshape": (0,), "Split": (0,), "Slice": (0,), "Gather": (0,), "GatherElements": (0,),
    "GatherND": (0,), "Pad": (0,), "Expand": (0,), "Squeeze": (0,), "Unsqueeze": (0,), "Flatten": (0,),
    "Tile": (0,), "DepthToSpace": (0,), "SpaceToDepth": (0,), "Trilu": (0,), "ReverseSequence": (0,),
    "Compress": (0,), "ScatterElements": (0, 2), "ScatterND": (0, 2), "Concat": (_EVERY,),
}  # fmt: skip
"""The inputs that are data, by operator; the others are indices, shapes and sizes."""


def _move(call: Call) -> list[Array]:
    """Elements of the inputs, or a fill value, each in its place."""
    if call.attrs.get("reduction", "none") != "none":
        raise Unsupported(f"{call.op} that reduces")
    data = _DATA[call.op]
    data = tuple(range(len(call.inputs))) if data == (_EVERY,) else data
    elements, indices, arrays = [_fill(call)], dict[int, Array](), list[Array | None]()
    used = 1  # index 0 is the fill value
    for i, tensor in enumerate(call.inputs):
        if i in data:
            array = call.condition(i) if call.first.dtype == TensorProto.BOOL else call.array(i)
            indices[i] = np.arange(used, used + array.size, dtype=np.int64).reshape(array.shape)
            elements.append(array.reshape(-1))
            used += array.size
            arrays.append(indices[i])
        elif call.op == "Pad" and i == 2:
            arrays.append(None if tensor is None else np.zeros((), np.int64))
        else:
            arrays.append(None if tensor is None else call.known(i))
    places = run_operator(call.op, "", call.attrs, arrays, call.opset, call.outputs)
    flat = np.concatenate(elements)
    return [flat[place] for place in places]


def _fill(call: Call) -> Array:
    if call.first.dtype == TensorProto.BOOL:
        return np.zeros(1, dtype=np.bool_)
    return (call.array(2) if call.op == "Pad" and call.has(2) else call.rational(0)).reshape(1)


def _same(call: Call) -> list[Tensor]:
    if call.outputs > 1:
        raise Unsupported(f"the mask of {call.op}")
    return [call.first]


def _dropout(call: Call) -> list[Tensor]:
    if call.has(2) and call.known(2).any():
        raise Unsupported("Dropout in training")
    return _same(call)


def _where(call: Call) -> Tensor:
    a, b, second = call.array(1), call.array(2), call.inputs[1]
    condition, a, b = np.broadcast_arrays(call.condition(0), a, b)
    if second is not None and second.dtype == TensorProto.BOOL:
        return Tensor(_chosen(call.domain, condition, call.condition(1), call.condition(2)), TensorProto.BOOL)
    return Tensor(call.domain.select(condition, a, b), call.first.dtype if second is None else second.dtype)


def _chosen(domain: Domain, condition: Array, a: Array, b: Array) -> Array:
    """`a` where `condition` holds, else `b`: truth values, by (c and a) or (not c and b)."""
    condition, a, b = np.broadcast_arrays(condition, a, b)
    first, second = domain.both(condition, a), domain.both(domain.negation(condition), b)
    return domain.negation(domain.both(domain.negation(first), domain.negation(second)))


def _shape(call: Call) -> Tensor:
    start, end = call.attrs.get("start", 0), call.attrs.get("end")
    shape = call.first.array.shape[slice(start, end)]
    return Tensor(np.array(shape, dtype=np.int64), TensorProto.INT64, known=True)


def _size(call: Call) -> Tensor:
    return Tensor(np.array(call.first.array.size, dtype=np.int64), TensorProto.INT64, known=True)


def _cast(call: Call) -> Tensor:
    """The same number where the new type holds every one of the old; else a rounding, uninterpreted."""
    tensor, target = call.first, int(call.attrs["to"])
    held = tensor.dtype if tensor.held is None else tensor.held
    if _holds(target, held):
        return Tensor(tensor.array, target, held=held)
    if tensor.dtype == TensorProto.BOOL:
        condition = call.condition(0)
        one, zero = (np.broadcast_to(call.rational(n), condition.shape) for n in (1, 0))
        return Tensor(call.domain.select(condition, one, zero), target)
    if target in FLOATS and tensor.dtype in FLOATS:
        return Tensor(call.domain.function(TensorProto.DataType.Name(target).title(), [call.array(0)]), target)
    if target == TensorProto.BOOL:
        raise Unsupported("Cast of numbers to truth values")
    return Tensor(call.domain.function(f"Cast to {target}", [call.array(0)]), target)


def _holds(target: int, source: int) -> bool:
    """Return whether the one element type holds every number of the other."""
    if target == source:
        return True
    if TensorProto.BFLOAT16 in (source, target) or TensorProto.BOOL in (source, target):
        return False
    kinds = [np.dtype(helper.tensor_dtype_to_np_dtype(dtype)) for dtype in (source, target)]
    if kinds[0].kind in "iu" and kinds[1].kind == "f":
        return bool(kinds[0].itemsize * 8 <= np.finfo(kinds[1]).nmant + 1)
    return all(kind.kind in "fiu" for kind in kinds) and bool(np.can_cast(kinds[0], kinds[1], "safe"))


DATA_MOVEMENT: dict[str, Semantics] = {
    **dict.fromkeys(_DATA, _move),
    "Identity": _same,
    "Dropout": _dropout,
    "Where": _where,
    "Shape": _shape,
    "Size": _size,
    "Cast": _cast,
}
