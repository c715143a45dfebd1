"""The conclusion saves, times and checks at once what a search had no time to measure."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from agents.conclusion import last_look
from agents.conclusion.conclude import conclude
from agents.conclusion.last_look import DOUBTFUL_RUNS, FURTHER_RUNS, OF_ROOFLINE, USUAL_RUNS, lacks_time, propose
from agents.conclusion.size_tradeoff import TOO_LARGE
from agents.core.base import SMALL_LEAD, Action, Budget, OptimizationResult, Search, action_of
from graph_rewrite import Graph, load
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.latency import Deployment, Latency
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.meters import ort_meter
from tests.agents.toys import chain_problem

FASTER = Latency(1.0, 1.5, (1.4, 1.6), 8, 1.5)
AGREES = Equivalence(True, 1e-7, 1e-4, "outputs agree")
STEPS = ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip")

Compare = Callable[..., tuple[Latency, Equivalence]]


@pytest.fixture
def search(tmp_path: Path) -> Search:
    """A search on a chain of two Relus, in ONNX Runtime, that ends in a minute."""
    problem = chain_problem(tmp_path, 2)
    problem.meter = ort_meter(problem.model, Deployment(), tmp_path / "work")
    return Search(problem, Budget(50, 50.0, conclusion_s=10.0, deadline=time.monotonic() + 60.0))


def drafted(search: Search) -> tuple[Graph, tuple[Action, ...]]:
    """The graph with one Clip, and what leads to it."""
    graph, actions = search.problem.model.graph, list[Action]()
    for rule in STEPS:
        candidate = next(c for c in search.problem.rewriter.candidates(graph) if c.rule == rule)
        graph, actions = candidate.apply(), [*actions, action_of(candidate)]
    return graph, tuple(actions)


def concluded(search: Search, monkeypatch: pytest.MonkeyPatch, compare: Compare | None = None) -> OptimizationResult:
    graph, actions = drafted(search)
    if compare is not None:
        monkeypatch.setattr(last_look, "timed_comparison", compare)
    propose(search, graph, actions)
    return conclude(search, "test")


def found(latency: Latency, outcome: Equivalence = AGREES) -> Compare:
    return lambda *_, **__: (latency, outcome)


def test_the_file_that_is_timed_and_compared_is_handed_over(
    search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[tuple[Path, Path, dict[str, Any]]]()

    def compare(_: Any, original: Path, optimised: Path, __: Deployment, **options: Any) -> tuple[Latency, Equivalence]:
        asked.append((original, optimised, options))
        return FASTER, AGREES

    result = concluded(search, monkeypatch, compare)
    ((original, optimised, options),) = asked
    assert original == search.problem.model.path
    assert optimised == result.checked.path
    assert options["tolerance"] == search.problem.limits.tolerance(search.problem.model.original, Deployment())
    assert (result.latency, result.measurements, result.message) == (FASTER, 1, AGREES.message)
    assert [point.speedup for point in result.improvements] == [FASTER.speedup]
    written = load(result.checked.write_to(tmp_path / "result.onnx"))
    assert sorted(node.op for node in written.nodes.values()) == ["Clip", "Relu", "Tanh", "Tanh"]


@pytest.mark.parametrize(
    ("latency", "outcome", "reason"),
    [
        (replace(FASTER, speedup=1.02, ci95=(0.98, 1.06)), AGREES, "a draft was not surely faster, in which the"),
        (Latency.failed("crash", "it crashed"), AGREES, "a draft was not surely faster, which failed: it crashed"),
        (FASTER, replace(AGREES, ok=False, message="output 'y' differs"), "output 'y' differs"),
    ],
)
def test_what_is_wrong_or_not_surely_faster_is_not_kept(
    search: Search, monkeypatch: pytest.MonkeyPatch, latency: Latency, outcome: Equivalence, reason: str
) -> None:
    result = concluded(search, monkeypatch, found(latency, outcome))
    assert result.is_original
    assert result.latency.speedup == 1.0
    assert reason in result.message


def test_what_saves_too_little_for_its_weights_is_not_kept(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Search, "price", lambda search, graph: 0.9 if search.visits else 0.0)
    result = concluded(search, monkeypatch, found(FASTER))
    assert result.is_original
    assert TOO_LARGE in result.message


def test_where_the_time_runs_out_the_original_is_kept(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    def late(*_: Any, **__: Any) -> tuple[Latency, Equivalence]:
        raise OutOfTime("the time limit is reached")

    result = concluded(search, monkeypatch, late)
    assert result.is_original
    assert "no time was left to measure and check a draft" in result.message


def test_in_onnx_runtime(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small graphs are about as fast: they are compared and timed, and only a sure gain would be kept."""
    result = concluded(search, monkeypatch)
    (visit,) = search.visits.values()
    assert visit.latency.ok
    assert visit.latency.runs > 0
    assert result.verified
    assert result.is_original == (visit.latency.lower_bound <= 1.005)


def test_a_change_of_the_function_is_found_in_onnx_runtime(search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
    timed = last_look.timed_comparison

    def broken(meter: Any, original: Path, optimised: Path, *others: Any, **options: Any) -> Any:
        model = onnx.load(optimised)
        next(node for node in model.graph.node if node.op_type == "Tanh").op_type = "Sigmoid"
        onnx.save(model, optimised)
        return FASTER, timed(meter, original, optimised, *others, **options)[1]

    result = concluded(search, monkeypatch, broken)
    assert result.is_original
    assert "differs by" in result.message


class TestLackOfTime:
    def lacks(self, search: Search, monkeypatch: pytest.MonkeyPatch, run_s: float, **options: Any) -> bool:
        monkeypatch.setattr(last_look, "roofline_seconds", lambda _: run_s / OF_ROOFLINE)
        return lacks_time(search, search.problem.model.graph, **options)

    @pytest.mark.parametrize(
        ("gain", "measurements", "runs"),
        [
            (SMALL_LEAD, 1, USUAL_RUNS),
            (SMALL_LEAD, 2, USUAL_RUNS + FURTHER_RUNS),
            (SMALL_LEAD / 2, 1, DOUBTFUL_RUNS),
        ],
    )
    def test_it_depends_on_the_runs_that_are_needed(
        self, search: Search, monkeypatch: pytest.MonkeyPatch, gain: float, measurements: int, runs: float
    ) -> None:
        options = {"gain": gain, "measurements": measurements}
        assert self.lacks(search, monkeypatch, 60.5 / runs, **options)
        assert not self.lacks(search, monkeypatch, 50.0 / runs, **options)

    def test_where_something_is_measured_already_the_usual_way_is_gone(
        self, search: Search, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search.measure(search.problem.model.graph, ())
        assert not self.lacks(search, monkeypatch, 60.0)

    def test_a_limit_without_a_deadline_counts_too(self, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
        search.budget = replace(search.budget, deadline=None, overtime_s=10.0)
        assert self.lacks(search, monkeypatch, 60.5 / USUAL_RUNS)
        assert not self.lacks(search, monkeypatch, 50.0 / USUAL_RUNS)

    @pytest.mark.parametrize("change", [{"deadline": None}, {"provisional": True}])
    def test_it_takes_a_time_limit_and_a_conclusion(
        self, search: Search, monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]
    ) -> None:
        search.budget = replace(search.budget, **change)
        assert not self.lacks(search, monkeypatch, 60.0)

    def test_it_takes_a_meter_of_files(self, search: Search, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        search.problem.meter = chain_problem(tmp_path, 3).meter
        assert not self.lacks(search, monkeypatch, 60.0)

    def test_what_breaks_a_limit_is_not_proposed(self, search: Search, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(type(search.problem), "violation", lambda *_: "too large")
        assert not self.lacks(search, monkeypatch, 60.0)

    def test_a_proposal_ends_the_search(self, search: Search) -> None:
        propose(search, *drafted(search))
        assert search.exhausted
        assert search.proposed is not None
