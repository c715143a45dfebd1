"""A winner's file is timed once more as it will be deployed, in a fresh process."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx
import pytest

from agents.conclusion.conclude import conclude
from agents.conclusion.confirmation import STEADY
from agents.conclusion.fresh_process import PLAN
from agents.core.base import Action, Budget, Search, action_of
from graph_rewrite import Graph
from graph_rewrite.latency import BaselineError, Deployment, Latency, Plan
from graph_rewrite.latency.files import deployed_latency
from graph_rewrite.task.meters import ort_meter
from tests.agents.toys import ExactMeter, chain_problem

STEPS = ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip")


@dataclass
class FileTimes(ExactMeter):
    """Speed-ups of files are planted by their number of Clips."""

    speedups: dict[int, Latency] = field(default_factory=dict)
    timed: list[tuple[Path, Path, Deployment, Plan]] = field(default_factory=list)

    def compare_files(self, original: Path, optimised: Path, deployment: Deployment, plan: Plan) -> Latency:
        self.timed.append((original, optimised, deployment, plan))
        clips = sum(node.op_type == "Clip" for node in onnx.load(optimised).graph.node)
        return self.speedups.get(clips, found(1.2, 1.3))


def found(low: float, high: float) -> Latency:
    return Latency(1.0, (low + high) / 2, (low, high), 10, 1.1)


def searched(folder: Path, speedups: dict[int, Latency], budget: Budget | None = None) -> tuple[Search, FileTimes]:
    """A search that found a graph with one Clip, and a faster one with two."""
    problem = chain_problem(folder, 2)
    meter = FileTimes(problem.model.original, speedups=speedups)
    problem.meter = meter
    search = Search(problem, budget or Budget(50, 60.0))
    graph = problem.model.graph
    actions: tuple[Action, ...] = ()
    for _ in range(2):
        for rule in STEPS:
            candidate = next(c for c in problem.rewriter.candidates(graph) if c.rule == rule)
            graph, actions = candidate.apply(), (*actions, action_of(candidate))
        search.measure(graph, actions)
    return search, meter


def clips(graph: Graph) -> int:
    return sum(node.op == "Clip" for node in graph.nodes.values())


def test_a_file_that_is_not_slower_is_handed_over(tmp_path: Path) -> None:
    search, meter = searched(tmp_path, {2: found(0.97, 1.02)})
    result = conclude(search, "test")
    assert clips(result.graph) == 2
    ((original, optimised, deployment, plan),) = meter.timed
    assert original == search.problem.model.path
    assert optimised == result.checked.path
    assert deployment == result.checked.deployment
    assert plan == PLAN


def test_where_the_file_is_slower_the_next_best_is_taken(tmp_path: Path) -> None:
    search, meter = searched(tmp_path, {2: found(0.90, 0.95)})
    result = conclude(search, "test")
    assert clips(result.graph) == 1
    assert len(meter.timed) == 2


@pytest.mark.parametrize("bad", [found(0.90, 0.95), Latency.failed("error", "it crashes")])
def test_where_all_are_worse_the_original_is_kept_and_the_message_says_why(tmp_path: Path, bad: Latency) -> None:
    search, _ = searched(tmp_path, {1: bad, 2: bad})
    result = conclude(search, "test")
    assert result.is_original
    assert result.verified
    reason = "slower than the original in a fresh process: x0.925 (0.900 to 0.950)" if bad.ok else "it crashes"
    assert reason in result.message


def test_an_original_that_cannot_be_timed_there_does_not_cost_the_winner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, _ = searched(tmp_path, {})

    def fails(*arguments: object) -> Latency:
        raise BaselineError("the machine is busy")

    monkeypatch.setattr(FileTimes, "compare_files", fails)
    assert clips(conclude(search, "test").graph) == 2


class TestWhereTimeIsLimited:
    """The saved file is measured anew in a fresh process at once, and no last look follows."""

    @pytest.fixture
    def budget(self) -> Budget:
        return Budget(50, 40.0, conclusion_s=20.0, deadline=time.monotonic() + 60.0)

    def test_what_is_reported_was_measured_there(self, tmp_path: Path, budget: Budget) -> None:
        search, meter = searched(tmp_path, {2: found(1.1, 1.14)}, budget)
        result = conclude(search, "test")
        assert clips(result.graph) == 2
        ((original, optimised, deployment, plan),) = meter.timed
        assert (original, optimised) == (search.problem.model.path, result.checked.path)
        assert deployment == result.checked.deployment
        assert plan == replace(STEADY, budget_s=plan.budget_s)
        assert 0.0 < plan.budget_s <= STEADY.budget_s
        assert result.latency == found(1.1, 1.14)

    @pytest.mark.parametrize("bad", [found(0.97, 1.02), Latency.failed("error", "it crashes")])
    def test_what_is_not_surely_faster_there_is_not_handed_over(
        self, tmp_path: Path, budget: Budget, bad: Latency
    ) -> None:
        search, meter = searched(tmp_path, {2: bad}, budget)
        result = conclude(search, "test")
        assert clips(result.graph) == 1
        assert len(meter.timed) == 2

    def test_an_original_that_cannot_be_timed_there_is_timed_as_the_search_does(
        self, tmp_path: Path, budget: Budget, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search, meter = searched(tmp_path, {}, budget)

        def fails(*arguments: object) -> Latency:
            raise BaselineError("the machine is busy")

        monkeypatch.setattr(FileTimes, "compare_files", fails)
        result = conclude(search, "test")
        assert clips(result.graph) == 2
        assert result.latency == meter.measure(result.graph, "full")


def test_files_of_an_ort_meter_are_timed_in_a_worker_of_their_own(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    plan = Plan(budget_s=0.01, min_pairs=1, max_pairs=1)
    with ort_meter(problem.model, Deployment(), tmp_path) as meter:
        path = problem.model.path
        latency = deployed_latency(meter, path, path, Deployment(), workspace=tmp_path, plan=plan)
        assert latency is not None
        assert latency.ok
        assert meter.measurements == 0
    exact = ExactMeter(problem.model.original)
    assert deployed_latency(exact, path, path, Deployment(), workspace=tmp_path, plan=plan) is None
