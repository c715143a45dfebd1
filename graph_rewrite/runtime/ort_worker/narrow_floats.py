"""Floats that NumPy has not, bfloat16 and float8: arrays of the types of ml_dtypes, and runs of models that take or
give them. ONNX Runtime hands them over as `OrtValue` only.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

Array = NDArray[Any]


class _Format(NamedTuple):
    """A type of floats: its number in `onnx.TensorProto.DataType`, its largest value, and the distance of 1 from the
    next larger one."""

    number: int
    largest: float
    epsilon: float


_FORMATS = {
    "bfloat16": _Format(16, (2.0 - 2.0**-7) * 2.0**127, 2.0**-7),
    "float8e4m3fn": _Format(17, 448.0, 2.0**-3),
    "float8e4m3fnuz": _Format(18, 240.0, 2.0**-3),
    "float8e5m2": _Format(19, 57344.0, 2.0**-2),
    "float8e5m2fnuz": _Format(20, 57344.0, 2.0**-2),
}
"""Element types by their names in ONNX Runtime."""
NARROW = frozenset(_FORMATS)
"""Names of the element types of this module."""
_WIDER = frozenset({"float16", "float32", "float64"})


def narrow_type(element: str) -> type[np.generic]:
    """Return the NumPy type of ml_dtypes for the name of an element type."""
    import ml_dtypes  # few models need it, and every worker would load it

    found: type[np.generic] = getattr(ml_dtypes, element.replace("float8", "float8_"))
    return found


def is_narrow(value: Any) -> bool:
    """Tell whether a value is an array of such floats."""
    return isinstance(value, np.ndarray) and _element_of(value.dtype) in NARROW


def narrowed(array: Array, dtype: type[np.generic]) -> Array:
    """Round an array to such floats; what is too large becomes the largest one, and not infinity or NaN."""
    largest = _FORMATS[_element_of(np.dtype(dtype))].largest
    return np.clip(array, -largest, largest).astype(dtype)


def epsilon(array: Array) -> float:
    """Return the distance of 1 from the next larger float of an array's type."""
    known = _FORMATS.get(_element_of(array.dtype))
    return float(np.finfo(array.dtype).eps) if known is None else known.epsilon


def storable(array: Array) -> Array:
    """Return an array as NumPy can write it into a file without pickling, and feeds are read: of these types the bytes
    alone, and texts as such instead of as objects."""
    if array.dtype.kind == "O":
        return array.astype(str)
    return array.view(f"V{array.dtype.itemsize}") if is_narrow(array) else array


def read_as(array: Array, dtype: type[np.generic]) -> Array:
    """Return an array out of a file as the type that an input wants, where that is one of these: files keep them as
    bytes without a type, and people as wider floats. Others are returned as they are."""
    wanted = np.dtype(dtype)
    if _element_of(wanted) not in NARROW:
        return array
    if array.dtype.name in _WIDER:
        return array.astype(wanted)
    is_bytes = array.dtype.kind == "V" and array.dtype.itemsize == wanted.itemsize
    return array.view(wanted) if is_bytes else array


def runner(
    session: ort.InferenceSession,
    names: Sequence[str] | None,
    feeds: Mapping[str, Any],
    made: dict[int, ort.OrtValue] | None = None,
) -> Callable[[], Any]:
    """Return a function that runs a session on inputs, made ready once, and returns the outputs as ONNX Runtime gives
    them: values, or `OrtValue`s where an output is of these types. `names` are the outputs, all of them for None.

    `made` keeps what is made of an array, by its `id`, for further functions that take the same arrays.
    """
    made = {} if made is None else made
    types = {item.name: item.type for item in session.get_outputs()}
    wanted = list(types) if names is None else list(names)
    ready: dict[str, Any] = {}
    for name, value in feeds.items():
        if is_narrow(value) and id(value) not in made:
            made[id(value)] = _ort_value(value)
        ready[name] = made.get(id(value), value)
    if not any(_is_narrow_type(types[name]) for name in wanted):
        return lambda: session.run(names, ready)
    for name, value in ready.items():
        if not isinstance(value, ort.OrtValue):
            ready[name] = made[id(value)] = _usual_ort_value(name, value)
    return lambda: session.run_with_ort_values(wanted, ready)


def run(session: ort.InferenceSession, names: Sequence[str], feeds: Mapping[str, Any]) -> list[Any]:
    """Return the outputs of these names, as arrays, lists and None."""
    return [_value(found) if isinstance(found, ort.OrtValue) else found for found in runner(session, names, feeds)()]


def _element_of(dtype: np.dtype[Any]) -> str:
    return dtype.name.replace("float8_", "float8")


def _is_narrow_type(type: str) -> bool:
    return type.removeprefix("tensor(").removesuffix(")") in NARROW


def _ort_value(array: Array) -> ort.OrtValue:
    bits = np.asarray(array, order="C").view(np.uint16 if array.dtype.itemsize == 2 else np.uint8)
    return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _FORMATS[_element_of(array.dtype)].number)


def _usual_ort_value(name: str, value: Any) -> ort.OrtValue:
    if not isinstance(value, np.ndarray) or value.dtype.kind == "O":
        raise ValueError(
            f"the model has outputs of bfloat16 or float8, which ONNX Runtime does not give together with the input"
            f" {name!r}, a text, a sequence or an optional value"
        )
    return ort.OrtValue.ortvalue_from_numpy(np.asarray(value, order="C"))


def _value(found: ort.OrtValue) -> Any:
    """Return what an `OrtValue` on the CPU holds."""
    element = found.data_type().removeprefix("tensor(").removesuffix(")")
    if element not in NARROW:
        return found.numpy()
    dtype, shape = np.dtype(narrow_type(element)), found.shape()
    size = int(np.prod(shape)) * dtype.itemsize
    if not size:
        return np.empty(shape, dtype)
    # Copied at once: the memory is that of the value.
    return np.frombuffer(ctypes.string_at(found.data_ptr(), size), dtype).reshape(shape)
