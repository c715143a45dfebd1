"""The time to load a model and the memory of its process."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.delivery.footprint import footprint
from graph_rewrite.runtime import Deployment, FeedSpec

MEGABYTES = 64


def _model(path: Path, megabytes: int = 0, dims: tuple[int | str, ...] = (2, 4)) -> Path:
    weights = numpy_helper.from_array(np.zeros((megabytes << 18 or 1,), np.float32), "w")
    nodes = [helper.make_node("ReduceSum", ["w"], ["s"]), helper.make_node("Add", ["x", "s"], ["y"])]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy"]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def test_weights_show_in_the_memory_of_the_process_and_not_those_of_this_one(tmp_path: Path) -> None:
    ballast = np.ones(100 << 20, np.uint8)
    small = footprint(_model(tmp_path / "small.onnx"), Deployment(), FeedSpec())
    large = footprint(_model(tmp_path / "large.onnx", MEGABYTES), Deployment(), FeedSpec())
    assert ballast.any()
    assert small is not None
    assert large is not None
    assert large.peak_bytes - small.peak_bytes > (MEGABYTES << 20) * 0.8
    assert small.peak_bytes > 10 << 20
    assert small.load_s > 0.0


def test_a_model_that_cannot_be_run_has_none(tmp_path: Path) -> None:
    assert footprint(_model(tmp_path / "open.onnx", dims=("batch", 4)), Deployment(), FeedSpec()) is None
    (tmp_path / "broken.onnx").write_bytes(b"no model")
    assert footprint(tmp_path / "broken.onnx", Deployment(), FeedSpec()) is None


def test_symbolic_dimensions_are_given(tmp_path: Path) -> None:
    path = _model(tmp_path / "open.onnx", dims=("batch", 4))
    assert footprint(path, Deployment(), FeedSpec(), shapes={"x": (3, 4)}) is not None


def test_a_process_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    assert footprint(_model(tmp_path / "m.onnx"), Deployment(), FeedSpec(), timeout_s=0.01) is None
