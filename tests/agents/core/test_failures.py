"""A search whose measurements fail says so: that is another thing than having found nothing faster."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, Search
from agents.core.records import Trials
from agents.core.registry import make_agent
from agents.reporting.progress import failure_warnings, print_warnings
from agents.reporting.runs import result_entry
from graph_rewrite.latency import Latency
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.problem import Problem
from tests.agents.toys import chain_problem


def failing(problem: Problem, *operators: str) -> Problem:
    problem.meter.failing = dict.fromkeys(operators, "error")  # type: ignore[attr-defined]
    return problem


def test_where_all_measurements_fail_the_message_says_so_with_the_first_error(tmp_path: Path) -> None:
    problem = failing(chain_problem(tmp_path), "ThresholdedRelu", "LeakyRelu", "Clip")
    result = make_agent("greedy").optimize(problem, Budget(measurements=20, seconds=60.0))
    assert result.is_original
    assert "none of the 2 candidates could be measured; the first error was: error: Thresholded" in result.message
    assert "faster" not in result.message
    entry = result_entry(result, problem, None)
    assert (entry["failed_measurements"], entry["tried_measurements"]) == (2, 2)
    assert entry["first_error"] == "error: ThresholdedRelu fails"
    (line,) = failure_warnings(entry)
    assert line.startswith("warning: 2 of 2 candidates could not be measured")
    console = Console(width=200)
    with console.capture() as seen:
        print_warnings(console, entry)
    assert seen.get().strip() == line


@pytest.mark.parametrize(("failed", "tried", "warns"), [(0, 0, False), (1, 2, False), (2, 3, True), (3, 3, True)])
def test_a_search_in_which_more_than_half_fail_warns(failed: int, tried: int, warns: bool) -> None:
    entry = {"failed_measurements": failed, "tried_measurements": tried, "first_error": "crash: signal 11"}
    assert bool(failure_warnings(entry)) == warns


def test_where_some_fail_both_are_said_and_nobody_is_warned(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path)
    search = Search(problem, Budget())
    slower = [candidate.apply() for candidate in problem.rewriter.candidates(problem.model.graph)]
    problem._memo[slower[0].hash, "screen"] = Latency.failed("crash", "signal 11")
    for graph in slower:
        search.measure(graph, (Action("key", "R", "R", 1),))
    result = conclude(search, "test")
    assert result.message == (
        "the original is kept: nothing was surely faster; 1 of 2 candidates could not be measured; "
        "the first error was: crash: signal 11"
    )
    assert failure_warnings(result_entry(result, problem, None)) == []


def test_where_none_fails_the_message_is_as_it_was(tmp_path: Path) -> None:
    result = make_agent("greedy").optimize(chain_problem(tmp_path), Budget(measurements=3, seconds=60.0))
    assert result.message == "the original is kept: nothing was surely faster"
    assert result.trials.count == result.measurements - 1 > 0


def test_a_graph_beyond_a_limit_is_no_failed_measurement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = chain_problem(tmp_path)
    monkeypatch.setattr(ResultLimits, "violation", lambda *arguments: "too large")
    search = Search(problem, Budget())
    search.measure(problem.rewriter.candidates(problem.model.graph)[0].apply(), (Action("key", "R", "R", 1),))
    assert search.trials == Trials()
    assert conclude(search, "test").message == "the original is kept: nothing was surely faster"


class TestDeadline:
    """The hard deadline of a budget ends a search and its conclusion wherever the meter runs into it."""

    def test_a_measurement_that_is_broken_off_ends_the_search_and_nothing_is_lost(self, tmp_path: Path) -> None:
        problem = chain_problem(tmp_path, sites=3)
        measure, seen = problem.meter.measure, list[str]()

        def slow(graph: Any, effort: Any = "screen") -> Latency:
            seen.append(graph.hash)
            if len(seen) == 4:
                raise OutOfTime
            return measure(graph, effort)

        problem.meter.measure = slow  # type: ignore[method-assign]
        result = make_agent("greedy").optimize(problem, Budget(deadline=time.monotonic() + 60.0, conclusion_s=20.0))
        assert result.measurements == 3
        assert result.verified

    @pytest.mark.parametrize("agent", ["random", "greedy", "taso", "tensat", "regional", "egraph-mcts", "mcts"])
    def test_every_agent_ends_with_the_original_where_no_time_is_left(self, tmp_path: Path, agent: str) -> None:
        problem = chain_problem(tmp_path)
        result = make_agent(agent).optimize(problem, Budget(deadline=time.monotonic() - 1.0))
        assert result.is_original
        assert result.verified
        assert "the time limit was reached before a candidate was measured" in result.message
        entry = result_entry(result, problem, None)
        assert entry["latency_ms"] is None
        assert result.checked.write_to(tmp_path / "kept.onnx").read_bytes() == problem.model.path.read_bytes()

    def test_what_cannot_be_confirmed_in_time_is_not_reported(self, tmp_path: Path) -> None:
        """A graph that its first measurement leaves in doubt is dropped."""
        problem = chain_problem(tmp_path, sites=1)
        measure = problem.meter.measure

        def doubtful(graph: Any, effort: Any = "screen") -> Latency:
            return replace(measure(graph, effort), ci95=(0.9, 9.0))

        problem.meter.measure = doubtful  # type: ignore[method-assign]

        def confirm(graph: Any, plan: Any = None) -> Latency:
            raise OutOfTime

        problem.meter.confirm = confirm  # type: ignore[attr-defined]
        graph, search = problem.model.graph, Search(problem, Budget(deadline=time.monotonic() + 60.0))
        for rule in ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip"):
            graph = next(c for c in problem.rewriter.candidates(graph) if c.rule == rule).apply()
        search.measure(graph, (Action("key", "R", "R", 1),))
        result = conclude(search, "test")
        assert result.is_original
        assert result.message == "the original is kept: no time was left to confirm and check the fastest"

    def test_where_full_measurements_run_out_of_time_the_screened_ones_choose_what_is_confirmed(
        self, tmp_path: Path
    ) -> None:
        problem = chain_problem(tmp_path, sites=1)
        graph, search = problem.model.graph, Search(problem, Budget(deadline=time.monotonic() + 60.0))
        for rule in ("ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip"):
            graph = next(c for c in problem.rewriter.candidates(graph) if c.rule == rule).apply()
        search.measure(graph, (Action("key", "R", "R", 1),))
        screened = search.visits[graph.hash].latency

        def full(graph: Any, effort: Any = "screen") -> Latency:
            raise OutOfTime

        problem.meter.measure = full  # type: ignore[method-assign]
        problem.meter.confirm = lambda graph, plan=None: screened  # type: ignore[attr-defined]
        assert conclude(search, "test").graph.hash == graph.hash
