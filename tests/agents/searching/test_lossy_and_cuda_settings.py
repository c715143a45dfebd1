"""Settings that change what is computed, and those of CUDA: a planted meter says that they gain, and the comparison of
outputs in ONNX Runtime decides whether they may be kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import rewritegym
from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search
from agents.searching.session_search import search_session
from graph_rewrite import Rewriter
from graph_rewrite.delivery.deployed import deployment_of
from graph_rewrite.latency import Deployment
from graph_rewrite.runtime import can_flush
from graph_rewrite.task.problem import Problem, open_problem
from tests.agents.planted_settings import PlantedMeter
from tests.agents.toys import problem_on

needs_flushing = pytest.mark.skipif(not can_flush(), reason="this machine cannot set single threads")
FLUSH = "set_denormal_as_zero"

RESTORED = "a = Mul(x, small) y = Mul(a, large)"
HARMLESS = "a = Mul(x, small) b = Mul(x, large) y = Add(a, b)"
CUDA_FACTORS = {"enable_cuda_graph": 0.6, "prefer_nhwc": 0.9, "cudnn_conv_algo_search": 1.1, "use_tf32": 1.2}


def problem_of(folder: Path, body: str, factors: dict[str, float], deployment: Deployment | None = None) -> Problem:
    """A small model whose gain by settings is planted."""
    text = (
        '<ir_version: 10, opset_import: ["" : 18]> g (float[1,4,8,8] x) => (float[1,4,8,8] y)'
        f" <float small = {{1e-40}}, float large = {{1e38}}> {{ {body} }}"
    )
    path = folder / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    problem = problem_on(path, folder, Rewriter((), deployment=True))
    meter = PlantedMeter(problem.model.original)
    meter.factors, meter.luck = factors, {}
    problem.meter = meter
    if deployment is not None:
        problem.deployment = deployment
    return problem


def searched(problem: Problem) -> Search:
    search = Search(problem, Budget(50, 60.0))
    search.measure(problem.model.graph, ())
    search_session(search)
    return search


def found(problem: Problem) -> OptimizationResult:
    return conclude(searched(problem), "test")


@needs_flushing
def test_zero_for_denormals_is_kept_where_outputs_stay_equal(tmp_path: Path) -> None:
    result = found(problem_of(tmp_path, HARMLESS, {FLUSH: 0.5}))
    assert result.verified
    assert result.latency.speedup == pytest.approx(2.0)
    assert result.checked.deployment.to_json()[FLUSH] is True
    written = result.checked.write_to(tmp_path / "out.onnx")
    x = np.ones((1, 4, 8, 8), np.float32)
    np.testing.assert_array_equal(rewritegym.session(written).run(None, {"x": x})[0], x * np.float32(1e38))
    assert (np.full(4, 1e-39, np.float32) * np.float32(2.0)).all()


@needs_flushing
def test_zero_for_denormals_is_refused_where_outputs_differ(tmp_path: Path) -> None:
    result = found(problem_of(tmp_path, RESTORED, {FLUSH: 0.5}))
    assert result.is_original
    assert result.verified
    assert FLUSH not in result.checked.deployment.to_json()
    assert "the original is kept" in result.message
    assert "'y'" in result.message


def test_zero_for_denormals_is_not_tried_where_all_values_are_kept(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, HARMLESS, {FLUSH: 0.5})
    problem.strict = True
    assert found(problem).is_original
    path = tmp_path / "model.onnx"
    for strict in (False, True):
        assert open_problem(f"file:{path}", provider="cpu", cached=False, strict=strict).strict == strict


def test_choices_for_cuda_are_kept_where_they_gain(tmp_path: Path) -> None:
    body = "w = Constant<value = float[4,4,1,1] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}>() y = Conv(x, w)"
    problem = problem_of(tmp_path, body, CUDA_FACTORS, Deployment("cuda"))
    best = searched(problem).best
    assert best is not None
    assert dict(best.graph.session_settings) == {"enable_cuda_graph": True, "prefer_nhwc": True}
    assert [action.rule for action in best.actions] == ["set enable_cuda_graph=true", "set prefer_nhwc=true"]
    deployment = deployment_of(best.graph, problem.deployment)
    assert deployment.providers()[0] == ("CUDAExecutionProvider", {"enable_cuda_graph": "1", "prefer_nhwc": "1"})
    assert Deployment.from_json(deployment.to_json()) == deployment


@pytest.mark.parametrize("factor", [0.9, 1.0])
def test_precision_and_algorithms_are_chosen_by_the_same_margin(tmp_path: Path, factor: float) -> None:
    body = "w = Constant<value = float[4,4,1,1] {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}>() y = Conv(x, w)"
    factors = {"use_tf32": factor, "cudnn_conv_algo_search": factor}
    best = searched(problem_of(tmp_path, body, factors, Deployment("cuda"))).best
    assert best is not None
    kept = {"use_tf32": False, "cudnn_conv_algo_search": "HEURISTIC"} if factor < 1.0 else {}
    assert dict(best.graph.session_settings) == kept


def test_no_choice_for_cuda_is_made_where_the_deployment_is_fixed(tmp_path: Path) -> None:
    problem = problem_of(tmp_path, HARMLESS, CUDA_FACTORS, Deployment("cuda"))
    problem.rewriter.deployment = False
    best = searched(problem).best
    assert best is not None
    assert best.graph.session_settings == ()
