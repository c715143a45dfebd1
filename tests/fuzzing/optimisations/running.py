"""Models in plain ONNX Runtime, with its optimisations off."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort

Array = np.ndarray[Any, Any]
_FATAL_ONLY = 4


def options(optimised: bool = False) -> ort.SessionOptions:
    """Return options for one thread, silent, and without optimisations unless they are wanted."""
    made = ort.SessionOptions()
    made.intra_op_num_threads = made.inter_op_num_threads = 1
    made.log_severity_level = _FATAL_ONLY
    if not optimised:
        made.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return made


def opened(model: onnx.ModelProto, names: Sequence[str] = (), optimised: bool = False) -> ort.InferenceSession:
    """Open a model, with further values of it as outputs; without optimisations unless they are wanted.

    Raises:
        RuntimeError: ONNX Runtime refuses it.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    known = {info.name for info in copy.graph.output}
    for name in names:
        if name not in known:
            copy.graph.output.add(name=name)
    try:
        return ort.InferenceSession(copy.SerializeToString(), options(optimised), providers=["CPUExecutionProvider"])
    except Exception as error:  # its classes differ from version to version
        raise RuntimeError(f"it does not open: {error}") from error


def run(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the outputs by name.

    Raises:
        RuntimeError: ONNX Runtime cannot run it.
    """
    try:
        found = session.run(None, dict(feeds))
    except Exception as error:
        raise RuntimeError(f"it does not run: {error}") from error
    names = [output.name for output in session.get_outputs()]
    return {name: np.asarray(array) for name, array in zip(names, found, strict=True)}


def largest_magnitude(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> float:
    """Return the largest magnitude of all float outputs; infinite where one is no finite number."""
    largest = 0.0
    for array in run(session, feeds).values():
        if array.dtype.kind == "f" and array.size:
            top = float(np.abs(array.astype(np.float64)).max())
            largest = max(largest, top if np.isfinite(top) else np.inf)
    return largest
