"""`rewritegym.optimize` on a small tower, from a file, from memory and from PyTorch."""

from pathlib import Path

import numpy as np
import onnx
import onnx_ir
import onnxruntime
import pytest
import torch

import rewritegym
from agents.core.base import Agent
from agents.core.registry import make_agent
from agents.optimization import outcome, sources
from agents.optimization.sources import as_file
from graph_rewrite.errors import UserError
from tests.envs.fakes import write_tower
from tests.graph_rewrite.sample_models import parsed, weights

X = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def expected(path: Path) -> np.ndarray:
    return np.asarray(onnx.reference.ReferenceEvaluator(str(path)).run(None, X)[0])


def test_a_file_in_a_checked_file_out(tower: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rewritegym.optimize(tower, tmp_path / "fast.onnx", time_limit=5, threads=1, agent="greedy")
    assert found.verified
    assert found.speedup >= 1.0
    assert found.deployment.threads == 1
    outputs = rewritegym.session(tmp_path / "fast.onnx").run(None, X)[0]
    assert np.allclose(outputs, expected(tower), rtol=1e-4, atol=1e-5)
    assert found.to_json()["onnx_path"] is None
    assert np.allclose(found.session().run(None, X)[0], outputs)
    listed = found.to_json()["rewrites"]
    monkeypatch.setattr(outcome, "result_entry", None)  # nothing but the rewrites is made for them
    assert found.rewrites == listed


def test_a_model_in_memory_needs_no_file(tower: Path, tmp_path: Path) -> None:
    found = rewritegym.optimize(onnx.load(tower), time_limit=5, threads=1, agent="greedy")
    saved = found.save(tmp_path / "out.onnx")
    assert saved == tmp_path / "out.onnx"
    assert np.allclose(rewritegym.session(saved).run(None, X)[0], expected(tower), rtol=1e-4, atol=1e-5)


def test_models_of_other_libraries_become_files(tower: Path, tmp_path: Path) -> None:
    path = as_file(onnx_ir.load(tower), tmp_path)
    assert np.allclose(expected(path), expected(tower))
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU()).train()
    module[0].eval()
    exported = as_file(module, tmp_path, torch.ones(2, 4))
    assert [part.training for part in module.modules()] == [True, False, True]  # as it was handed over
    session = onnxruntime.InferenceSession(exported, providers=["CPUExecutionProvider"])
    feeds = {session.get_inputs()[0].name: np.ones((2, 4), np.float32)}
    wanted = module(torch.ones(2, 4)).detach().numpy()
    assert np.allclose(session.run(None, feeds)[0], wanted, atol=1e-6)


def test_a_model_in_memory_may_say_that_its_weights_are_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = parsed("(float[4,32] x) => (float[4,32] y) { y = MatMul(x, w) }", weights("w", 32, 32))
    x = {"x": np.ones((4, 32), np.float32)}
    wanted = onnxruntime.InferenceSession(model.SerializeToString()).run(None, x)[0]
    onnx.save(model, tmp_path / "saved.onnx", save_as_external_data=True, location="w.data", size_threshold=0)
    onnx.external_data_helper.convert_model_to_external_data(model, location="later.data", size_threshold=0)
    before = model.SerializeToString(deterministic=True)
    (tmp_path / "other").mkdir()
    bare = onnx.load(tmp_path / "saved.onnx", load_external_data=False)
    with pytest.raises(UserError, match="give the path of the model's file"):
        as_file(bare, tmp_path / "other")
    monkeypatch.chdir(tmp_path)
    for given in (model, bare):
        path = as_file(given, tmp_path / "other")
        assert np.array_equal(onnxruntime.InferenceSession(path).run(None, x)[0], wanted)
    assert model.SerializeToString(deterministic=True) == before


def test_a_large_model_in_memory_stays_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "INLINE_BYTES", 0)
    model = parsed("(float[4,32] x) => (float[4,32] y) { y = MatMul(x, w) }", weights("w", 32, 32))
    before, x = model.SerializeToString(deterministic=True), {"x": np.ones((4, 32), np.float32)}
    path = as_file(model, tmp_path)
    assert model.SerializeToString(deterministic=True) == before
    assert (tmp_path / "model.onnx.data").stat().st_size >= 32 * 32 * 4
    wanted = onnx.reference.ReferenceEvaluator(model).run(None, x)[0]
    assert np.array_equal(onnx.reference.ReferenceEvaluator(str(path)).run(None, x)[0], wanted)


def test_a_result_survives_what_cannot_be_written(
    tower: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    options = {"time_limit": 3, "threads": 1, "agent": "random", "memory": False}
    monkeypatch.setattr("agents.optimization.reports.write_report", full)
    found = rewritegym.optimize(tower, tmp_path / "fast.onnx", report=tmp_path / "page.html", **options)
    assert found.verified
    assert (tmp_path / "fast.onnx").is_file()
    assert "the report is not written" in capsys.readouterr().err
    save = outcome.Optimization.save
    monkeypatch.setattr(
        outcome.Optimization, "save", lambda own, path: full() if path.parent == tmp_path else save(own, path)
    )
    with pytest.raises(UserError, match=r"No space left on device; the result is saved as .*full\.onnx instead"):
        rewritegym.optimize(tower, tmp_path / "full.onnx", **options)


def test_mistakes_say_what_to_do(tower: Path, tmp_path: Path) -> None:
    (tmp_path / "taken.onnx").write_bytes(b"of somebody else")
    with pytest.raises(UserError, match="needs example_inputs"):
        rewritegym.optimize(torch.nn.Linear(2, 2))
    with pytest.raises(UserError, match="exists"):
        rewritegym.optimize(tower, tmp_path / "taken.onnx")
    with pytest.raises(UserError, match="opset 99 is unknown"):
        rewritegym.optimize(tower, target_opset=99, agent="greedy")
    with pytest.raises(TypeError, match="not int"):
        rewritegym.optimize(7)
    with pytest.raises(TypeError, match="no_such_option"):
        rewritegym.optimize(tower, no_such_option=1)


def test_the_agent_is_made_once(tower: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def counting(spec: str) -> Agent:
        made.append(spec)
        return make_agent(spec)

    monkeypatch.setattr("agents.optimization.run.make_agent", counting)
    rewritegym.optimize(tower, time_limit=3, threads=1, agent="random", memory=False)
    assert made == ["random"]
