"""The time limit of models with symbolic dimensions: what ships is measured and checked once, so that the search has as
much time as that of a model with fixed shapes. Latencies are planted."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.conclusion.conclude import TOO_LARGE, conclude
from agents.core.base import Budget, OptimizationResult, Search, action_of
from agents.optimization import dynamic, remembering
from agents.optimization.dynamic import for_all_shapes
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from graph_rewrite.delivery.ship import UnmadeModel, UnverifiedModelError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import JUDGE, Latency
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from tests.agents.optimization.planted import LIMIT, PlantedAgent
from tests.graph_rewrite.symbolic.dynamic_models import transformer
from tests.graph_rewrite.symbolic.walks import open_dynamic

SHAPE = "ids:1,24"
Carry = Callable[..., OptimizationResult]


def optimized(path: Path, **options: Any) -> Optimization:
    return optimize_model(path, OptimizeOptions(time_limit=LIMIT, threads="1", shape=(SHAPE,), **options))


def test_the_search_of_a_symbolic_model_has_as_much_time_as_that_of_a_fixed_one(
    agent: PlantedAgent, tmp_path: Path
) -> None:
    agent.measurements = 1
    path = transformer(tmp_path / "t.onnx", layers=1)
    for static in (True, False):
        optimized(path, static=static)
    fixed, symbolic = agent.budgets
    assert symbolic.seconds >= 0.97 * fixed.seconds


def test_a_search_that_leaves_confirming_to_the_caller_chooses_and_makes_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem, _ = open_dynamic(transformer(tmp_path / "t.onnx", layers=1), SHAPE)
    confirmed = list[Graph]()
    monkeypatch.setattr(Problem, "confirm", lambda self, graph, *_: confirmed.append(graph))
    result = provisional(problem)
    assert not result.is_original
    assert result.latency.speedup > 1.0
    assert confirmed == []
    assert isinstance(result.checked, UnmadeModel)
    assert not result.verified
    with pytest.raises(UnverifiedModelError, match="not made yet"):
        result.checked.write_to(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()
    assert not list(problem.workspace.glob("checked-*"))


def provisional(problem: Problem) -> OptimizationResult:
    """The end of a search that found one rewrite, which leaves confirming it to the caller."""
    search = Search(problem, Budget(provisional=True))
    search.measure(problem.model.graph, ())
    for candidate in problem.rewriter.candidates(problem.model.graph):
        if candidate.rule == "FuseDividedMatMul":
            search.measure(candidate.apply(), (action_of(candidate),))
    return conclude(search, "test")


def test_where_no_rewrite_gains_the_original_is_kept_as_ever(tmp_path: Path) -> None:
    problem, _ = open_dynamic(transformer(tmp_path / "t.onnx", layers=1), SHAPE)
    search = Search(problem, Budget(provisional=True))
    search.measure(problem.model.graph, ())
    result = conclude(search, "test")
    assert result.is_original
    assert result.verified


class TestMemory:
    def test_the_result_is_remembered_as_it_was_measured_for_all_shapes(
        self, agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.measurements = 12
        monkeypatch.setattr(dynamic, "measure_at", measured(1.25))
        made = optimized(transformer(tmp_path / "a.onnx", layers=1))
        assert made.speedup == 1.25
        assert made.verified
        (kept,) = ResultMemory().folder.glob("*.json")
        assert json.loads(kept.read_text())["speedup"] == 1.25

    def test_what_no_time_was_left_to_carry_over_is_not_lost(
        self, agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        agent.measurements = 12
        monkeypatch.setattr(dynamic, "generalise", out_of_time)
        first, second = (optimized(transformer(tmp_path / f"{i}.onnx", layers=1, seed=i)) for i in range(2))
        assert first.result.is_original
        assert second.result.agent == remembering.NAME
        assert len(agent.searched) == 1


def out_of_time(problem: Problem, actions: Any, bindings: DimensionBindings) -> SymbolicResult:
    return SymbolicResult(bindings, message="no time was left to carry the rewrites over to other shapes")


def measured(*speedups: float, width: float = 0.0) -> Any:
    """Plant the speed-ups at the first binding, one per look, with intervals of this width."""

    def measure_at(problem: Problem, graph: Graph, bindings: DimensionBindings, plan: Any, look: int = 0) -> Any:
        s = speedups[look]
        return tuple(Latency(1.0, s, (s - width / 2, s + width / 2), 9, s) for _ in bindings.values)

    return measure_at


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, OptimizationResult, SymbolicResult]:
    """One rewrite of a transformer, chosen at one shape, and made for all."""
    problem, bindings = open_dynamic(transformer(tmp_path_factory.mktemp("t") / "t.onnx", layers=1), SHAPE)
    result = provisional(problem)
    return problem, result, generalise(problem, result.actions, bindings)


@pytest.fixture
def carried(found: tuple[Problem, OptimizationResult, SymbolicResult], monkeypatch: pytest.MonkeyPatch) -> Carry:
    problem, result, general = found
    monkeypatch.setattr(dynamic, "generalise", lambda *_: general)

    def carry(price: float = 0.0) -> OptimizationResult:
        monkeypatch.setattr(problem, "limits", replace(problem.limits, size_price=price))
        last = time.monotonic() + 60.0
        return for_all_shapes(problem, result, general.bindings, static=False, deadline=last, plan=JUDGE).result

    return carry


def test_a_small_gain_for_all_shapes_is_measured_until_it_is_sure(
    carried: Carry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dynamic, "measure_at", measured(1.02, 1.021, 1.019, 1.02, width=0.034))
    made = carried()
    assert made.latency.speedup == pytest.approx(1.02, abs=2e-3)
    assert made.verified
    assert not made.is_original


def test_luck_in_the_first_look_is_not_believed(carried: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "measure_at", measured(1.02, 1.0, 1.0, 1.0, width=0.034))
    made = carried()
    assert made.is_original
    assert "x1.0" in made.message


def test_weights_have_their_price_in_a_model_for_all_shapes(carried: Carry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamic, "measure_at", measured(1.2))
    monkeypatch.setattr(ResultLimits, "price", lambda self, original, graph: 0.3 * bool(self.size_price))
    assert carried().latency.speedup == 1.2
    dear = carried(price=0.1)
    assert dear.is_original
    assert TOO_LARGE in dear.message
