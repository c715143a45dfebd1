"""Graphs that a look says will compute with denormal numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.onnx_files.loading import load
from graph_rewrite.operators.denormals import computes_denormals
from graph_rewrite.runtime import block_size
from graph_rewrite.zoo.further.swin import shift_mask

SIDE = 6
AVX512_BLOCK = 16
"""Channels in a block of the blocked layout by which the runtime's kernels for AVX-512 are known."""


def masked(folder: Path, mask: np.ndarray, op: str = "Add", operator: str = "Softmax") -> Path:
    """Return the file of a model that takes scores, combines them with a mask, and normalises them after a Reshape."""
    nodes = [
        helper.make_node(op, ["scores", "mask"], ["masked"]),
        helper.make_node("Reshape", ["masked", "shape"], ["flat"]),
        helper.make_node(operator, ["flat"], ["y"], **({"axis": -1} if operator == "Softmax" else {})),
    ]
    side = len(mask)
    scores = helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, side, side))
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, (side, side))
    weights = [
        numpy_helper.from_array(mask.astype(np.float32), "mask"),
        numpy_helper.from_array(np.array([side, side]), "shape"),
    ]
    graph = helper.make_graph(nodes, "g", [scores], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def triangle(value: float) -> np.ndarray:
    return value * np.triu(np.ones((SIDE, SIDE)), 1)


@pytest.mark.parametrize(
    ("value", "denormal"),
    [(-100.0, True), (-95.0, True), (-1e4, False), (-3.4e38, False), (-10.0, False), (0.0, False)],
)
def test_a_mask_gives_denormal_exponentials(tmp_path: Path, value: float, denormal: bool) -> None:
    """As the runtime computes them with AVX-512, where scores differ by little. Its kernels for AVX2 have 0 instead."""
    path = masked(tmp_path, triangle(value))
    assert computes_denormals(load(path)) == denormal
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    scores = np.random.default_rng(0).normal(size=(1, SIDE, SIDE)).astype(np.float32)
    (y,) = session.run(None, {"scores": scores})
    tiny = np.finfo(np.float32).tiny
    assert bool(((y > 0.0) & (y < tiny)).any()) == (denormal and block_size() == AVX512_BLOCK)


def test_a_constant_that_no_softmax_reads_gives_none(tmp_path: Path) -> None:
    assert not computes_denormals(load(masked(tmp_path, triangle(-100.0), operator="Relu")))


def test_nor_does_one_behind_another_function(tmp_path: Path) -> None:
    assert not computes_denormals(load(masked(tmp_path, triangle(-100.0), op="Pow")))


def test_a_shifted_window_of_swin_is_masked_so(tmp_path: Path) -> None:
    last_window = shift_mask(4, 2, 1)[-1, 0].numpy()
    assert computes_denormals(load(masked(tmp_path, last_window)))
