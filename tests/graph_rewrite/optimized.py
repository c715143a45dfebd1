"""Operators of a graph after ONNX Runtime's optimisers."""

import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import onnx
import onnxruntime

from graph_rewrite import Graph, save
from graph_rewrite.runtime import Deployment


def optimized_ops(graph: Graph, refused: Iterable[str] = ()) -> Counter[str]:
    """Count the operators that the CPU provider runs at the highest level without the refused optimisers."""
    options = Deployment(disabled_optimizers=frozenset(refused)).session_options()
    with tempfile.TemporaryDirectory() as folder:
        path = save(graph, Path(folder, "model.onnx"))
        options.optimized_model_filepath = str(Path(folder, "optimized.onnx"))
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        return Counter(node.op_type for node in onnx.load(options.optimized_model_filepath).graph.node)
