"""Element types: which are floating-point numbers, and what NumPy calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.rewriting.replacement import Ref

FLOATS = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE, TensorProto.BFLOAT16})


def is_float(ref: Ref) -> bool:
    """Tell whether the elements are floating-point numbers."""
    return ref.dtype in FLOATS


def numpy_dtype(ref: Ref) -> np.dtype[Any]:
    """Return the NumPy element type of a value."""
    return np.dtype(helper.tensor_dtype_to_np_dtype(ref.dtype))
