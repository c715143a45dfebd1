"""Opening an optimised model under the deployment recorded for it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import Rewriter, load, save
from graph_rewrite.delivery.deployed import METADATA_KEY, deployment_of, recorded_deployment, session, sidecar_of
from graph_rewrite.errors import UserError
from graph_rewrite.operators import nchwc
from graph_rewrite.rules.layout.blocked_subgraphs import PartInBlockedLayout
from graph_rewrite.runtime import Deployment
from graph_rewrite.soundness.cases.blocked import examples_of

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
    for damaged in ("{", "[]", json.dumps({**OTHER.to_json(), "sha256": "of another file"})):
        record_beside(model, damaged)
        assert recorded_deployment(model) == DEPLOYMENT


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


needs_blocks = pytest.mark.skipif(not nchwc.block_size(), reason="ONNX Runtime has no blocked layout on this CPU")


@pytest.fixture
def blocked(tmp_path: Path) -> Path:
    """A saved model with operators of the blocked layout, recorded as the tool records it."""
    (graph, *_) = examples_of("PartInBlockedLayout")
    (candidate,) = Rewriter([PartInBlockedLayout()], deployment=False).candidates(graph)
    after = candidate.apply()
    text = json.dumps(deployment_of(after, DEPLOYMENT).to_json())
    return save(after, tmp_path / "blocked.onnx", {METADATA_KEY: text})


@needs_blocks
def test_a_model_of_the_blocked_layout_records_the_block(blocked: Path) -> None:
    recorded = recorded_deployment(blocked)
    assert recorded == replace(DEPLOYMENT, nchwc_block=nchwc.block_size())
    assert (nchwc.DOMAIN, 1) in {(entry.domain, entry.version) for entry in onnx.load(blocked).opset_import}
    opened = session(blocked)
    (x,) = opened.get_inputs()
    assert np.isfinite(opened.run(None, {x.name: np.ones(x.shape, np.float32)})[0]).all()


@needs_blocks
@pytest.mark.parametrize(("other", "words"), [(8, "blocks of 8"), (32, "blocks of 32"), (0, "no blocked layout")])
def test_a_cpu_with_another_block_refuses_it(blocked: Path, monkeypatch: pytest.MonkeyPatch, other: int, words: str):
    if other == nchwc.block_size():
        pytest.skip("this is the CPU's own block")
    monkeypatch.setattr("graph_rewrite.runtime.ort_worker.deployment.block_size", lambda: other)
    with pytest.raises(RuntimeError, match=rf"blocked\.onnx has operators.*{words}.*--standard-ops-only"):
        session(blocked)


def test_a_graph_of_other_operators_runs_on_any_cpu(model: Path) -> None:
    graph = load(model)
    assert deployment_of(graph, DEPLOYMENT) == DEPLOYMENT
    assert "nchwc_block" not in DEPLOYMENT.to_json()


def test_the_block_survives_json_and_the_plain_deployment_has_none() -> None:
    bound = replace(DEPLOYMENT, nchwc_block=16)
    assert Deployment.from_json(bound.to_json()) == bound
    assert Deployment.from_json(DEPLOYMENT.to_json()).nchwc_block == 0
    assert bound.plain().nchwc_block == 0


def test_overrides_of_a_session(model: Path) -> None:
    recorded = DEPLOYMENT.with_settings({"enable_mem_pattern": False})
    record_inside(model, json.dumps(recorded.to_json()))
    options = session(model).get_session_options()
    assert (options.intra_op_num_threads, options.enable_mem_pattern) == (2, False)
    options = session(model, threads=1, enable_mem_pattern=True, allow_spinning=False).get_session_options()
    assert (options.intra_op_num_threads, options.enable_mem_pattern) == (1, True)
    assert options.get_session_config_entry("session.intra_op.allow_spinning") == "0"
    assert options.get_session_config_entry("optimization.disable_specified_optimizers") == "GeluFusionL2"
    with pytest.raises(UserError, match=r"optimized\.onnx: .*no session setting is named 'spin'"):
        session(model, spin=False)


def test_a_graph_that_asks_for_settings_is_deployed_with_them(model: Path) -> None:
    graph = load(model).with_session_settings({"threads": 1, "allow_spinning": False})
    assert deployment_of(graph, DEPLOYMENT) == replace(DEPLOYMENT, threads=1).with_settings({"allow_spinning": False})
    assert graph.hash != load(model).hash
    assert graph.with_session_settings({}).hash == load(model).hash
