"""Subgraphs that read values which depend on symbolic dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from graph_rewrite import save
from graph_rewrite.symbolic.generalise import generalise
from tests.graph_rewrite.symbolic.walks import open_dynamic, take


def _branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)])


def _model() -> onnx.ModelProto:
    """Two negations that cancel, and a branch that multiplies by the size of the batch."""
    size = [helper.make_node("Shape", ["x"], ["shape"]), helper.make_node("Gather", ["shape", "first"], ["count"])]
    times = _branch(
        "more",
        helper.make_node("Cast", ["count"], ["number"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "number"], ["more"]),
    )
    plain = _branch("same", helper.make_node("Identity", ["x"], ["same"]))
    nodes = [
        helper.make_node("Neg", ["x"], ["a"]), helper.make_node("Neg", ["a"], ["b"]), *size,
        helper.make_node("If", ["wanted"], ["c"], then_branch=times, else_branch=plain),
        helper.make_node("Add", ["b", "c"], ["y"]),
    ]  # fmt: skip
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4]),
        helper.make_tensor_value_info("wanted", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4])]
    first = helper.make_tensor("first", TensorProto.INT64, [], [0])
    graph = helper.make_graph(nodes, "g", inputs, outputs, [first])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)


def _run(path: Path, x: Any) -> Any:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "wanted": np.array(True)})[0]


def test_a_branch_reads_what_is_computed_from_the_shape(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(_model(), path)
    problem, bindings = open_dynamic(path, "x:2,4")
    _, step = take(problem, problem.model.graph, "DropInvolution")
    result = generalise(problem, [step], bindings)
    assert result.ok, result.message
    assert result.graph is not None
    saved = save(result.graph, tmp_path / "general.onnx")
    for batch in (1, 2, 5):
        x = np.random.default_rng(batch).standard_normal((batch, 4)).astype(np.float32)
        np.testing.assert_allclose(_run(saved, x), _run(path, x), rtol=1e-6)
