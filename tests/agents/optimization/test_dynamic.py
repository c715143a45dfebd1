"""Models with symbolic dimensions: planted meters decide what is faster, ONNX Runtime what is right."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import rewritegym
from agents.conclusion import conclude
from agents.conclusion.recordings import actions_file
from agents.conclusion.size_tradeoff import TOO_LARGE
from agents.core.base import Action, Budget, OptimizationResult
from agents.greedy import GreedyAgent
from agents.optimization import dynamic, remembering
from agents.optimization.dynamic import DynamicResult, for_all_shapes, seconds_for_all_shapes
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from agents.reporting.progress import dynamic_lines
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import JUDGE, Latency
from graph_rewrite.replay import read_recording
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from tests.agents.optimization.planted import LIMIT, PlantedAgent
from tests.graph_rewrite.symbolic.dynamic_models import VOCABULARY, transformer
from tests.graph_rewrite.symbolic.walks import open_dynamic

SHAPE = "ids:1,24"
Carry = Callable[..., OptimizationResult]


def optimized(path: Path, **options: Any) -> Optimization:
    return optimize_model(path, OptimizeOptions(time_limit=LIMIT, threads="1", shape=(SHAPE,), **options))


def searched(problem: Problem) -> OptimizationResult:
    return GreedyAgent().optimize(problem, Budget(measurements=40, seconds=20.0))


def generalised(
    problem: Problem, result: OptimizationResult, bindings: DimensionBindings, **options: Any
) -> DynamicResult:
    given = {"static": False, "deadline": time.monotonic() + 60.0, "plan": JUDGE, **options}
    return for_all_shapes(problem, result, bindings, **given)


def run(path: Path, batch: int, length: int) -> np.ndarray[Any, Any]:
    ids = np.random.default_rng(batch).integers(0, VOCABULARY, (batch, length))
    return np.asarray(rewritegym.session(path).run(None, {"ids": ids})[0])


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Problem, OptimizationResult, DimensionBindings]:
    """A search of a transformer at one shape, that found something."""
    problem, bindings = open_dynamic(transformer(tmp_path_factory.mktemp("t") / "t.onnx", layers=1), SHAPE, "ids:2,40")
    result = searched(problem)
    assert not result.is_original
    return problem, result, bindings


@pytest.fixture(scope="module")
def general(found: tuple[Problem, OptimizationResult, DimensionBindings]) -> SymbolicResult:
    problem, result, bindings = found
    return generalise(problem, result.actions, bindings)


def test_what_is_written_has_symbolic_dimensions_and_was_compared(
    found: tuple[Problem, OptimizationResult, DimensionBindings], tmp_path: Path
) -> None:
    problem, result, bindings = found
    made = generalised(problem, result, bindings)
    assert made.result.verified
    assert made.result.graph is not result.graph
    written = made.result.checked.write_to(tmp_path / "out.onnx")
    info = onnx.load(written).graph.input[0]
    assert [d.dim_param for d in info.type.tensor_type.shape.dim] == ["batch", "sequence"]
    for batch, length in ((1, 24), (3, 7), (8, 48)):
        assert run(written, batch, length).shape == (batch, length, 16)
    assert made.dynamic["symbolic"]
    assert len(made.dynamic["verified_at"]) >= 5
    assert [one["at"]["sequence"] for one in made.dynamic["speedup_at"]] == [24, 40]
    kept = sum(action.count for action in made.result.actions)
    assert kept >= 0.8 * sum(action.count for action in result.actions)


def test_a_file_with_fixed_shapes_is_written_on_demand(
    found: tuple[Problem, OptimizationResult, DimensionBindings],
) -> None:
    problem, result, bindings = found
    made = generalised(problem, result, bindings, static=True)
    assert made.result is result
    assert not made.dynamic["symbolic"]
    assert "--static" in made.dynamic["message"]
    assert "fixed shapes: batch=1, sequence=24" in " ".join(dynamic_lines(made.dynamic))
    assert seconds_for_all_shapes(bindings, True, 100.0) == 0.0
    assert seconds_for_all_shapes(bindings, False, 100.0) > 0.0


def test_the_own_file_under_another_deployment_stays_as_it_is(
    found: tuple[Problem, OptimizationResult, DimensionBindings],
) -> None:
    problem, result, bindings = found
    own = replace(result, checked=conclude.original_kept(problem))
    made = generalised(problem, own, bindings)
    assert made.result is own
    assert made.dynamic["symbolic"]


def original_kept(made: DynamicResult, problem: Problem, folder: Path) -> str:
    """The message of an original that is kept byte by byte."""
    assert made.result.is_original
    assert made.result.latency.speedup == 1.0
    assert made.dynamic["symbolic"]
    written = made.result.checked.write_to(folder / "kept.onnx")
    assert written.read_bytes() == problem.model.path.read_bytes()
    return made.result.message


def test_where_nothing_generalises_the_original_is_kept(
    found: tuple[Problem, OptimizationResult, DimensionBindings], tmp_path: Path
) -> None:
    problem, result, bindings = found
    strange = replace(result, actions=(Action("extract", "Extraction", "", 1),), path=())
    message = original_kept(generalised(problem, strange, bindings), problem, tmp_path)
    assert "Extraction was not found by single rewrites" in message
    late = generalised(problem, result, bindings, deadline=time.monotonic() - 1.0)
    assert "no time was left" in original_kept(late, problem, tmp_path)


def test_a_copy_of_the_original_that_does_not_agree_with_it_is_told(
    found: tuple[Problem, OptimizationResult, DimensionBindings], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime's own optimisers may change what a model in double precision computes."""
    problem, result, bindings = found
    kept = conclude.original_kept(problem)
    wrong = replace(kept, outcome=replace(kept.outcome, ok=False, message="it differs"))
    monkeypatch.setattr(dynamic, "original_kept", lambda _: wrong)
    late = generalised(problem, result, bindings, deadline=time.monotonic() - 1.0).result
    assert not late.verified
    assert late.message.endswith("; a copy of it does not agree with it and is not written: it differs")


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [(1.002, 1.3, "x1.002"), (1.3, 0.9, "at batch=2, sequence=40 it is slower: x0.900"), (1.3, math.nan, "cannot be")],
)
def test_what_is_slower_at_a_shape_that_was_asked_for_is_not_kept(
    found: tuple[Problem, OptimizationResult, DimensionBindings],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    first: float,
    second: float,
    message: str,
    general: SymbolicResult,
) -> None:
    problem, result, bindings = found

    def measured(problem: Problem, graph: Graph, bindings: DimensionBindings, plan: Any) -> tuple[Latency, ...]:
        return tuple(
            Latency.failed("error", "out of memory") if math.isnan(s) else Latency(1.0, s, (s, s), 9, s)
            for s in (first, second)
        )

    monkeypatch.setattr(dynamic, "measure_at", measured)
    monkeypatch.setattr(dynamic, "generalise", lambda *_: general)
    assert message in original_kept(generalised(problem, result, bindings), problem, tmp_path)


def test_the_whole_run_keeps_the_symbolic_dimensions(tmp_path: Path) -> None:
    path = transformer(tmp_path / "t.onnx", layers=2)
    options = OptimizeOptions(shape=("auto",), time_limit="12s", threads="1", agent="greedy")
    done = optimize_model(path, options)
    summary = done.summary(done.save(tmp_path / "out.onnx"))
    assert summary["verified"]
    assert summary["dynamic"]["bound"] == {"batch": 1, "sequence": 32}
    assert "since no --shape says otherwise" in summary["dynamic"]["note"]
    assert run(tmp_path / "out.onnx", 3, 9).shape == (3, 9, 16)
    info = onnx.load(tmp_path / "out.onnx").graph.input[0]
    assert [d.dim_param for d in info.type.tensor_type.shape.dim] == ["batch", "sequence"]
    if done.speedup == 1.0:
        assert (tmp_path / "out.onnx").read_bytes() == path.read_bytes()


def test_a_kept_original_names_itself(agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        dynamic, "generalise", lambda problem, actions, bound: SymbolicResult(bound, message="none fits")
    )
    path = transformer(tmp_path / "t.onnx", layers=1)
    done = optimized(path)
    assert "none fits" in done.result.message
    recording = read_recording(actions_file(done.save(tmp_path / "out.onnx")))
    assert (recording.steps, recording.model, dict(recording.shapes)) == ((), "t.onnx", {"ids": (1, 24)})


def test_the_search_of_a_symbolic_model_has_as_much_time_as_that_of_a_fixed_one(
    agent: PlantedAgent, tmp_path: Path
) -> None:
    agent.measurements = 1
    path = transformer(tmp_path / "t.onnx", layers=1)
    for static in (True, False):
        optimized(path, static=static)
    fixed, symbolic = agent.budgets
    assert symbolic.seconds >= 0.97 * fixed.seconds


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


@pytest.fixture
def carried(
    found: tuple[Problem, OptimizationResult, DimensionBindings],
    general: SymbolicResult,
    monkeypatch: pytest.MonkeyPatch,
) -> Carry:
    """Carry a result over whose measurements are planted, with a price of weights."""
    problem, result, bindings = found
    monkeypatch.setattr(dynamic, "generalise", lambda *_: general)

    def carry(price: float = 0.0) -> OptimizationResult:
        monkeypatch.setattr(problem, "limits", replace(problem.limits, size_price=price))
        return generalised(problem, result, bindings).result

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
