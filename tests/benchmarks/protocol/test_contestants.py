"""Contestants as plain values, and models in ONNX Runtime as one of them."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import Contestant, check_plain
from graph_rewrite.delivery.deployed import METADATA_KEY, sidecar_of
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def two_outputs(path: Path, deployment: Deployment | None = None) -> Path:
    """Write a model with outputs `a` = max(x, 0) and `b` = -x."""
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Neg", ["x"], ["b"])]
    values = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xab"}
    graph = helper.make_graph(nodes, "g", [values["x"]], [values["a"], values["b"]])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    if deployment is not None:
        model.metadata_props.add(key=METADATA_KEY, value=json.dumps(deployment.to_json()))
    onnx.save(model, path)
    return path


def test_a_contestant_survives_the_way_to_another_process(tmp_path: Path) -> None:
    contestant = Contestant("ort-basic", ort_runner.MODULE, tmp_path / "m.onnx", {"optimization_level": "basic"})
    sent = json.loads(json.dumps(contestant.to_json()))
    assert Contestant.from_json(sent) == contestant
    assert Contestant.from_json(Contestant("eager", "m").to_json()) == Contestant("eager", "m")


def test_options_that_another_process_cannot_be_told_are_refused() -> None:
    with pytest.raises(TypeError):
        check_plain(Contestant("eager", "m", options={"function": print}))


def test_outputs_come_in_the_asked_order(tmp_path: Path) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    first, second = Contestant("original", ort_runner.MODULE, path).open(1).run({"x": X, "unread": X})
    np.testing.assert_array_equal(first, np.maximum(X, 0))
    np.testing.assert_array_equal(second, -X)
    other = Contestant("other", ort_runner.MODULE, path, {"outputs": ["b", "a"]}).open(1)
    np.testing.assert_array_equal(other.run({"x": X})[0], -X)


def test_an_optimised_file_runs_with_the_deployment_that_it_records(tmp_path: Path) -> None:
    recorded = Deployment(optimization_level="extended", disabled_optimizers=frozenset({"SkipLayerNormFusion"}))
    path = two_outputs(tmp_path / "m.onnx", recorded)
    assert ort_runner.deployment_for(Contestant("regional/0", ort_runner.MODULE, path), 1) == recorded
    plain = Contestant("original", ort_runner.MODULE, path, {"plain": True})
    assert ort_runner.deployment_for(plain, 2) == Deployment(threads=2)


def test_a_kept_original_records_its_deployment_beside_it(tmp_path: Path) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    recorded = Deployment(optimization_level="basic")
    sidecar_of(path).write_text(json.dumps(recorded.to_json()))
    assert ort_runner.deployment_for(Contestant("greedy/1", ort_runner.MODULE, path), 1) == recorded


@pytest.mark.parametrize("level", ["none", "basic", "extended", "all"])
def test_levels_of_onnx_runtime_are_chosen_by_option(tmp_path: Path, level: str) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    runner = ort_runner.open_runner(Contestant("ort", ort_runner.MODULE, path, {"optimization_level": level}), 1)
    assert runner.deployment.optimization_level == level
    np.testing.assert_array_equal(runner.run({"x": X})[0], np.maximum(X, 0))


def test_what_cannot_be_opened_says_why(tmp_path: Path) -> None:
    path = two_outputs(tmp_path / "m.onnx")
    with pytest.raises(UserError, match="no model file"):
        Contestant("lost", ort_runner.MODULE).open(1)
    with pytest.raises(UserError, match="no option level"):
        Contestant("ort", ort_runner.MODULE, path, {"level": "all"}).open(1)
    assert onnxruntime.InferenceSession(path)  # it was not the file
