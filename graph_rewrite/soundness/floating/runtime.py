"""Graphs in ONNX Runtime on the CPU with all optimisations off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnxruntime as ort

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.runtime import Deployment

Array = np.ndarray[Any, Any]
UNOPTIMIZED = Deployment("cpu", 1, "none")


class RuntimeRefusalError(Exception):
    """ONNX Runtime does not load or run a graph; the message is its own, on one line."""


def run_runtime(graph: Graph, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a graph.

    Raises:
        RuntimeRefusalError: ONNX Runtime refuses the graph or fails to run it.
    """
    return run_session(open_session(graph), feeds)


def open_session(graph: Graph) -> ort.InferenceSession:
    """Return a session on a graph.

    Raises:
        RuntimeRefusalError: ONNX Runtime refuses the graph, for lack of a kernel as a rule.
    """
    data = to_proto(graph).SerializeToString()
    options = UNOPTIMIZED.session_options()
    # Messages about failures come as exceptions; on standard error they would run into tables.
    options.log_severity_level = 4
    try:
        return ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the exceptions of ONNX Runtime's binding have no base class of their own
        raise RuntimeRefusalError(" ".join(str(error).split())) from error


def run_session(session: ort.InferenceSession, feeds: Mapping[str, Array]) -> list[Array]:
    """Return the outputs of a session; inputs that the graph does not have are left out.

    Raises:
        RuntimeRefusalError: ONNX Runtime fails to run the graph.
    """
    known = {item.name for item in session.get_inputs()}
    names = [item.name for item in session.get_outputs()]
    try:
        results = session.run(names, {name: array for name, array in feeds.items() if name in known})
    except Exception as error:  # the exceptions of ONNX Runtime's binding have no base class of their own
        raise RuntimeRefusalError(" ".join(str(error).split())) from error
    return [np.asarray(array) for array in results]
