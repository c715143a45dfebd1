"""Opening an optimised model under the deployment recorded for it."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite.deployed import METADATA_KEY, recorded_deployment, session, sidecar_of
from graph_rewrite.latency.deployment import Deployment

DEPLOYMENT = Deployment(threads=2, optimization_level="extended", disabled_optimizers=frozenset({"GeluFusionL2"}))
OTHER = Deployment(threads=3)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """y = x + x on four floats, with no deployment recorded."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "x"], ["y"])], "double", types[:1], types[1:])
    path = tmp_path / "optimized.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    return path


def record_inside(model: Path, text: str) -> None:
    proto = onnx.load(model)
    helper.set_model_props(proto, {METADATA_KEY: text})
    onnx.save(proto, model)


def record_beside(model: Path, text: str) -> None:
    sidecar_of(model).write_text(text, encoding="utf-8")


def test_session_runs_under_the_recorded_deployment(model: Path) -> None:
    record_inside(model, json.dumps(DEPLOYMENT.to_json()))
    opened = session(model)
    options = opened.get_session_options()
    assert options.intra_op_num_threads == 2
    assert options.get_session_config_entry("optimization.disable_specified_optimizers") == "GeluFusionL2"
    x = np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(opened.run(None, {"x": x})[0], x + x)


def test_the_file_beside_counts_where_the_model_records_nothing(model: Path) -> None:
    record_beside(model, json.dumps(OTHER.to_json()))
    assert recorded_deployment(model) == OTHER
    record_inside(model, json.dumps(DEPLOYMENT.to_json()))
    assert recorded_deployment(str(model)) == DEPLOYMENT


def test_no_record_is_an_error_that_names_both_places(model: Path) -> None:
    with pytest.raises(ValueError, match=r"no deployment is recorded.*optimized\.onnx\.deployment\.json"):
        session(model)


def test_missing_model(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"absent\.onnx: no such model file"):
        session(tmp_path / "absent.onnx")


def test_truncated_model(model: Path) -> None:
    model.write_bytes(model.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"optimized\.onnx: not an ONNX model, or incomplete"):
        session(model)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"provider": "cpu"}', "missing"),
        (json.dumps({**OTHER.to_json(), "provider": "tpu"}), "provider 'tpu'"),
        (json.dumps({**OTHER.to_json(), "threads": None}), "int"),
    ],
)
def test_damaged_record_names_its_place(model: Path, text: str, message: str) -> None:
    record_beside(model, text)
    with pytest.raises(ValueError, match=rf"deployment\.json.*{message}"):
        session(model)
