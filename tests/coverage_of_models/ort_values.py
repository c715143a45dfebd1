"""Values of any ONNX type in and out of ONNX Runtime: numbers that NumPy lacks, sequences and optionals."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import numpy_helper


def opened(model: bytes) -> ort.InferenceSession:
    """Open a model with ONNX Runtime's defaults, on one thread of the CPU."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    return ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def fed(values: Sequence[Any], session: ort.InferenceSession) -> dict[str, Any]:
    """Return a test case's inputs by name, as a session takes them. Trailing inputs may be missing."""
    return {item.name: _as_feed(value) for item, value in zip(session.get_inputs(), values, strict=False)}


def run(session: ort.InferenceSession, feeds: Mapping[str, Any]) -> list[Any]:
    """Run a session and return its outputs: arrays, lists of them, or None. Numbers that NumPy lacks come as bytes."""
    if any("seq(" in item.type or "optional(" in item.type for item in session.get_outputs()):
        return list(session.run(None, dict(feeds)))
    if all(_is_numpy(item.type) for item in (*session.get_inputs(), *session.get_outputs())):
        return list(session.run(None, dict(feeds)))
    if not all(isinstance(value, (np.ndarray, ort.OrtValue)) for value in feeds.values()):
        return list(session.run(None, dict(feeds)))
    names = [item.name for item in session.get_outputs()]
    given = {name: _as_ort_value(value) for name, value in feeds.items()}
    found = session.run_with_ort_values(names, given)
    return [_as_array(value, item.type) for value, item in zip(found, session.get_outputs(), strict=True)]


def expected_value(value: Any) -> Any:
    """Return an output that a test case expects, in the form in which `run` returns it."""
    if isinstance(value, (list, tuple)):
        return [expected_value(element) for element in value]
    if value is None or isinstance(value, bytes):
        return value
    if not isinstance(value, onnx.TensorProto):
        array = np.asarray(value)
        if _is_built_in(array.dtype):
            return array
        value = numpy_helper.from_array(array)
    if _is_numpy_type(value.data_type):
        return numpy_helper.to_array(value)
    array = numpy_helper.to_array(value)
    return array.astype(np.float32) if value.data_type == onnx.TensorProto.BFLOAT16 else _packed(value)


def difference(expected: Any, found: Any, rtol: float, atol: float) -> str:
    """Return what is wrong with an output; empty where it is what was expected.

    Args:
        rtol: with `atol`, the limit of each float, as in `numpy.allclose`. Other elements must be equal.
    """
    if isinstance(expected, list):
        if not isinstance(found, list) or len(found) != len(expected):
            return f"is no sequence of {len(expected)}"
        wrong = (difference(a, b, rtol, atol) for a, b in zip(expected, found, strict=True))
        return next((text for text in wrong if text), "")
    if expected is None or isinstance(expected, bytes) or not isinstance(found, np.ndarray):
        return "" if type(expected) is type(found) and expected == found else f"is {found!r:.60}, not {expected!r:.60}"
    if expected.shape != found.shape:
        return f"has shape {found.shape}, not {expected.shape}"
    if expected.dtype.kind in "OSU":
        return "" if _texts(expected) == _texts(found) else "has other texts"
    if expected.dtype != found.dtype:
        return f"is {found.dtype}, not {expected.dtype}"
    if expected.dtype.kind not in "fc":
        return "" if np.array_equal(expected, found) else "has other integers or booleans"
    if np.allclose(found, expected, rtol, atol, equal_nan=True):
        return ""
    with np.errstate(invalid="ignore"):
        error = np.nanmax(np.abs(found.astype(np.float64) - expected.astype(np.float64)), initial=0.0)
    return f"differs by {error:.3g}"


def _texts(array: np.ndarray) -> list[str]:
    return [item.decode() if isinstance(item, bytes) else str(item) for item in array.ravel()]


def _is_numpy_type(data_type: int) -> bool:
    return _is_built_in(onnx.helper.tensor_dtype_to_np_dtype(data_type))


def _is_built_in(dtype: np.dtype[Any]) -> bool:
    # The kind does not tell: that of ml_dtypes.float8_e5m2 is "f".
    return dtype.isbuiltin == 1


def _is_numpy(text: str) -> bool:
    """Return whether the values of a type, such as `tensor(float)`, are arrays of NumPy's own types."""
    return text.startswith("tensor(") and not any(
        word in text for word in ("bfloat", "float8", "float4", "int4", "int2")
    )


def _as_feed(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_feed(element) for element in value]
    if value is None:
        return None
    if not isinstance(value, onnx.TensorProto):
        array = np.asarray(value)
        if _is_built_in(array.dtype):
            return array.astype(object) if array.dtype.kind in "SU" else array
        value = numpy_helper.from_array(array)
    if _is_numpy_type(value.data_type):
        return numpy_helper.to_array(value)
    packed = _packed(value)
    made = ort.OrtValue.ortvalue_from_shape_and_type(list(value.dims), value.data_type)
    ctypes.memmove(made.data_ptr(), packed, len(packed))
    return made


def _packed(tensor: onnx.TensorProto) -> bytes:
    """Return the elements of a tensor as they lie in memory: two or four of the small types in a byte."""
    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    copied = numpy_helper.from_array(numpy_helper.to_array(tensor))
    return bytes(copied.raw_data)


def _as_ort_value(value: Any) -> ort.OrtValue:
    return value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)


def _as_array(value: ort.OrtValue, type_text: str) -> Any:
    if _is_numpy(type_text):
        return value.numpy()
    content = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    if "bfloat16" not in type_text:
        return content
    bits = np.frombuffer(content, np.uint16).astype(np.uint32) << 16
    return bits.view(np.float32).reshape(value.shape())
