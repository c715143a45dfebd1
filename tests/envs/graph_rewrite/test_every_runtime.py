"""The environment and recordings with real measurements, in every runtime that runs here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from gymnasium.utils.env_checker import check_env

from agents.conclusion.conclude import saved_and_checked
from agents.conclusion.recordings import recording_or_none
from agents.core.base import action_of
from envs import GraphRewriteEnv
from graph_rewrite.delivery.deployed import recorded_deployment, session
from graph_rewrite.replay import Recording, replay
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import write_tower
from tests.runtimes import every_provider

pytestmark = every_provider


@pytest.fixture
def tower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def made(tower: Path, provider: str) -> GraphRewriteEnv:
    return GraphRewriteEnv(
        f"file:{tower}", provider=provider, horizon=3, feedback_every=1, max_candidates=64, max_nodes=256, max_edges=256
    )


def walked(env: GraphRewriteEnv) -> list[Any]:
    """Rewards and infos of the first legal rewrite in every state."""
    env.reset(seed=0)
    seen = []
    for _ in range(3):
        legal = [k for k in np.flatnonzero(env.action_masks()[:-1]) if env.candidates[k].kind != "deployment"]
        _, reward, *_, info = env.step(int(legal[0]))
        seen.append((reward, info))
    return seen


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_environment_keeps_its_promises(tower: Path, provider: str) -> None:
    env = made(tower, provider)
    check_env(env, skip_render_check=True)
    first, second = walked(env), walked(env)
    assert first == second, "the same graph has the same latency for the life of the meter"
    assert all(info["measured"] and not info["failure"] for _, info in first)
    assert all(info["latency_ms"] > 0.0 for _, info in first)
    env.close()


def test_only_what_the_runtime_knows_is_offered(tower: Path, provider: str) -> None:
    problem = open_problem(f"file:{tower}", provider=provider)
    kinds = {candidate.kind for candidate in problem.rewriter.candidates(problem.model.graph)}
    assert ("deployment" in kinds) == (provider == "cpu")
    domains = problem.rewriter.domains
    assert domains is None if provider == "cpu" else domains == {"", "ai.onnx"}


def test_a_recording_leads_to_the_same_checked_file(tower: Path, tmp_path: Path, provider: str) -> None:
    problem = open_problem(f"file:{tower}", provider=provider, deployment_choices=False)
    graph, actions = problem.model.graph, []
    for _ in range(2):
        candidate = problem.rewriter.candidates(graph)[0]
        actions.append(action_of(candidate))
        graph = candidate.apply()
    recording = recording_or_none(problem, actions, graph)
    assert recording is not None
    runtime = "openvino" if provider == "openvino" else "onnxruntime"
    assert set(recording.environment) == {"device", runtime, "memory_pages"}
    again = open_problem(f"file:{tower}", provider=provider, deployment_choices=False)
    found = replay(Recording.from_json(json.loads(json.dumps(recording.to_json()))), again.model.graph, again.rewriter)
    assert found.complete
    assert found.graph.hash == graph.hash
    checked = saved_and_checked(again, found.graph)
    assert checked.outcome.ok, checked.outcome.message
    written = checked.write_to(tmp_path / "out.onnx")
    assert recorded_deployment(written).provider == provider
    x = {"x": np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)}
    expected = onnx.reference.ReferenceEvaluator(str(tower)).run(None, x)[0]
    np.testing.assert_allclose(session(written).run(None, x)[0], expected, rtol=1e-4, atol=1e-5)


def test_a_wrong_rewrite_is_not_written(tower: Path, tmp_path: Path, provider: str) -> None:
    problem = open_problem(f"file:{tower}", provider=provider, deployment_choices=False)
    wrong = tmp_path / "wrong.onnx"
    model = onnx.load(tower)
    next(node for node in model.graph.node if node.op_type == "Relu").op_type = "Neg"
    onnx.save(model, wrong)
    checked = saved_and_checked(problem, open_problem(f"file:{wrong}", provider=provider).model.graph)
    assert not checked.outcome.ok
    with pytest.raises(RuntimeError, match="not written"):
        checked.write_to(tmp_path / "out.onnx")
