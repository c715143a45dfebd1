"""Random and greedy search on a meter without noise: budgets hold, results are checked, nothing gets slower."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from agents.conclusion.conclude import conclude
from agents.conclusion.finalists import finalists_of
from agents.core.base import Action, Budget, Search, Visit
from agents.core.registry import make_agent
from agents.reporting.runs import write_optimized
from graph_rewrite import Graph
from graph_rewrite.latency import SCREEN, BaselineError, Latency, MachineLock, Plan
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import cost

OpenTower = Callable[..., Problem]


@pytest.mark.parametrize("name", ["random", "greedy"])
def test_agents_keep_their_budget_and_return_a_checked_faster_graph(open_tower: OpenTower, name: str) -> None:
    problem = open_tower()
    result = make_agent(name).optimize(problem, Budget(measurements=40, seconds=60.0), seed=1)
    assert result.measurements <= 40
    assert result.verified
    assert result.max_rel_error < 1e-5
    assert cost(result.graph) < cost(problem.model.original)
    assert result.latency.speedup == pytest.approx(cost(problem.model.original) / cost(result.graph))
    speedups = [speedup for _, _, speedup in result.trajectory]
    assert speedups == sorted(speedups)


def test_greedy_reaches_a_local_optimum(open_tower: OpenTower) -> None:
    problem = open_tower()
    result = make_agent("greedy").optimize(problem, Budget(measurements=5000, seconds=120.0))
    neighbours = [candidate.apply() for candidate in problem.rewriter.candidates(result.graph)]
    assert neighbours
    assert all(cost(graph) >= cost(result.graph) for graph in neighbours)


def test_actions_replay_to_the_same_graph(open_tower: OpenTower) -> None:
    problem = open_tower()
    result = make_agent("greedy").optimize(problem, Budget(measurements=60, seconds=60.0))
    graph = problem.model.graph
    for action in result.actions:
        matching = [c for c in problem.rewriter.candidates(graph) if c.key == action.key]
        assert [c.rule for c in matching] == [action.rule]
        graph = matching[0].apply()
    assert graph.hash == result.graph.hash
    assert sum(result.rule_histogram.values()) == sum(action.count for action in result.actions)


def test_random_is_reproducible(open_tower: OpenTower) -> None:
    first, second = (
        make_agent("random").optimize(open_tower(), Budget(measurements=25, seconds=60.0), seed=7) for _ in range(2)
    )
    assert [a.key for a in first.actions] == [a.key for a in second.actions]


def test_the_original_is_returned_where_nothing_is_surely_faster(open_tower: OpenTower) -> None:
    problem = open_tower()
    search = Search(problem, Budget())
    candidate = problem.rewriter.candidates(problem.model.graph)[-1]
    from agents.core.base import action_of

    search.measure(candidate.apply(), (action_of(candidate),))
    doubtful = Latency(1.0, 1.01, (0.99, 1.03), 10, 1.01)
    problem._memo = dict.fromkeys([(candidate.apply().hash, "screen"), (candidate.apply().hash, "full")], doubtful)
    search.visits = {key: replace(visit, latency=doubtful) for key, visit in search.visits.items()}
    result = conclude(search, "test")
    assert result.is_original
    assert (result.latency.speedup, result.latency.ci95) == (1.0, (1.0, 1.0))
    assert result.graph is problem.model.original
    assert "original is kept" in result.message


def test_wrong_results_are_never_returned(
    open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from graph_rewrite.delivery.equivalence import Equivalence

    def unequal(*args: Any, **options: Any) -> Equivalence:
        return Equivalence(False, 0.5, 1e-4, "output 0 differs by 0.5")

    monkeypatch.setattr("graph_rewrite.delivery.ship.equivalent", unequal)
    result = make_agent("greedy").optimize(open_tower(), Budget(measurements=30, seconds=60.0))
    assert result.is_original
    assert "output 0 differs" in result.message
    assert not result.verified
    assert write_optimized(result, tmp_path / "optimized.onnx") is None
    assert not (tmp_path / "optimized.onnx").exists()


def test_graphs_already_measured_by_another_agent_cost_the_same(open_tower: OpenTower) -> None:
    problem = open_tower()
    graph = problem.model.graph
    first = Search(problem, Budget())
    first.measure(graph, ())
    problem._seconds[graph.hash, "screen"] = 5.0
    second = Search(problem, Budget(seconds=4.0))
    second.measure(graph, ())
    assert second.measurements == 1
    assert second.seconds >= 5.0
    assert second.exhausted


def test_waiting_for_another_process_costs_no_search_its_seconds(
    open_tower: OpenTower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = "import sys\nfrom graph_rewrite.latency import MachineLock\n"
    holder += "with MachineLock(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.readline()"
    problem = open_tower()
    meter: Any = problem.meter
    measured = meter.measure

    def measure(*arguments: Any) -> Any:
        with MachineLock(tmp_path / "lock"):
            return measured(*arguments)

    meter.measure = measure
    command = [sys.executable, "-c", holder, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        # The other process gives the lock back once this one has waited for 0.6 s, however slow either of them is.
        let_go, pauses, pause = process.stdin.close, list[float](), time.sleep

        def sleep(seconds: float) -> None:
            pauses.append(time.monotonic())
            if pauses[-1] - pauses[0] > 0.6:
                let_go()
            pause(seconds)

        monkeypatch.setattr("graph_rewrite.latency.lock.time.sleep", sleep)
        search, began = Search(problem, Budget()), time.monotonic()
        search.measure(problem.model.graph, ())
        # Read at once: the search's clock goes on while the other process ends.
        waited, seconds = time.monotonic() - began, search.seconds
    assert waited > 0.5
    assert seconds < waited - 0.3
    assert problem.cost(problem.model.graph) < waited - 0.3


def test_unknown_agents_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"there is no agent 'gready'; there are .*greedy, mcts, ppo, random, regional, taso"
    ):
        make_agent("gready")


class TestInTurn:
    """Graphs that seem faster than another are compared with it directly, where the meter can."""

    TRUTH: ClassVar[dict[str, float]] = {"lucky": 0.98, "leader": 1.0, "modest": 1.01}

    @pytest.fixture
    def problem(self, open_tower: OpenTower) -> Problem:
        problem = open_tower()
        self.graphs = dict(zip(self.TRUTH, self.first_graphs(problem), strict=False))
        self.asked: list[tuple[str, str]] = []
        speed = {graph.hash: self.TRUTH[name] for name, graph in self.graphs.items()}

        def compare(reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
            self.asked.append((reference.hash, candidate.hash))
            ratio = speed[candidate.hash] / speed[reference.hash]
            return Latency(1.0, ratio, (ratio - 0.005, ratio + 0.005), 10, ratio)

        problem.meter.compare = compare  # type: ignore[attr-defined]
        return problem

    @staticmethod
    def first_graphs(problem: Problem) -> list[Graph]:
        return [candidate.apply() for candidate in problem.rewriter.candidates(problem.model.graph)[:3]]

    def visit(self, search: Search, name: str, sure: float, steps: int, half: float = 0.1) -> Visit:
        latency = Latency(1.0, sure + half, (sure, sure + 2 * half), 10, sure + half)
        graph = self.graphs[name]
        search.problem._memo |= {(graph.hash, "screen"): latency, (graph.hash, "full"): latency}
        search.measure(graph, (Action("key", "R", "R", 1),) * steps)
        return search.visits[graph.hash]

    def test_a_lucky_measurement_does_not_beat_what_is_faster_in_turn(self, problem: Problem) -> None:
        search = Search(problem, Budget())
        leader, lucky = self.visit(search, "leader", 1.10, 2), self.visit(search, "lucky", 1.20, 3)
        modest = self.visit(search, "modest", 1.12, 3)
        assert not search.beats(lucky, leader)
        assert search.beats(modest, leader, gain=0.005)
        assert not search.beats(modest, leader, gain=0.0105)
        assert not search.beats(leader, modest)
        assert len(self.asked) == 2  # each pair once; what was slower against the original is not compared

    def test_what_is_measured_badly_is_compared_where_it_may_be_faster(self, problem: Problem) -> None:
        search = Search(problem, Budget())
        leader, modest = self.visit(search, "leader", 1.10, 2), self.visit(search, "modest", 1.02, 3, half=0.2)
        assert search.beats(modest, leader)
        del problem.meter.compare  # type: ignore[attr-defined]
        assert not search.beats(modest, leader)

    def test_a_search_whose_time_is_nearly_over_compares_nothing(self, problem: Problem) -> None:
        """The comparison takes 9 s on a model of 140 ms, which the conclusion would lack."""
        search = Search(problem, Budget(seconds=60.0))
        leader, modest = self.visit(search, "leader", 1.10, 2), self.visit(search, "modest", 1.12, 3)
        slow = replace(modest, latency=replace(modest.latency, ms=140.0))
        search.charge("long search", 45.0, 0.0)
        assert search.beats(slow, leader)
        assert len(self.asked) == 1
        search.charge("longer search", 10.0, 0.0)
        assert search.beats(slow, leader)
        assert not search.beats(replace(slow, latency=replace(slow.latency, ci95=(1.0, 1.3))), leader)
        assert len(self.asked) == 1
        assert search.beats(modest, leader)  # of 1 ms

    def test_a_graph_that_no_longer_runs_beats_nothing(self, problem: Problem) -> None:
        def compare(reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
            raise BaselineError("the worker died")

        problem.meter.compare = compare  # type: ignore[attr-defined]
        search = Search(problem, Budget())
        leader, modest = self.visit(search, "leader", 1.10, 2), self.visit(search, "modest", 1.12, 3)
        assert not search.beats(modest, leader)
        assert conclude(search, "test").graph.hash == modest.graph.hash

    def test_a_short_comparison_does_not_answer_for_a_full_one(self, problem: Problem) -> None:
        pair = self.graphs["leader"], self.graphs["modest"]
        for plan in (SCREEN, None, SCREEN, None):
            problem.compare(*pair, plan)
        assert len(self.asked) == 2

    def test_time_is_charged_also_for_a_comparison_that_is_known(self, problem: Problem) -> None:
        first = Search(problem, Budget())
        leader, modest = self.visit(first, "leader", 1.10, 2), self.visit(first, "modest", 1.12, 3)
        first.beats(modest, leader)
        problem._compared = {pair: (latency, 7.0) for pair, (latency, _) in problem._compared.items()}
        second = Search(problem, Budget())
        second.beats(modest, leader)
        assert 7.0 <= second.seconds < 14.0
        second.beats(modest, leader)
        assert second.seconds < 14.0  # this search paid for it already
        bounded = Search(problem, Budget(deadline=time.monotonic() + 1000.0))
        bounded.beats(modest, leader)
        assert bounded.seconds < 7.0

    def test_the_result_is_the_one_that_was_fastest_in_turn(self, problem: Problem) -> None:
        search = Search(problem, Budget())
        self.visit(search, "lucky", 1.20, 4)
        self.visit(search, "leader", 1.11, 3)
        self.visit(search, "modest", 1.10, 2)
        assert conclude(search, "test").graph.hash == self.graphs["modest"].hash
        del problem.meter.compare  # type: ignore[attr-defined]
        assert conclude(search, "test").graph.hash == self.graphs["lucky"].hash

    def test_the_best_is_confirmed_where_no_first_measurement_is_sure(self, problem: Problem) -> None:
        """The second one decides, also against it; what comes after the best is not tried then."""
        search = Search(problem, Budget())
        visits = [self.visit(search, name, sure, 2) for name, sure in (("modest", 0.99), ("leader", 0.98))]
        for confirmed, result in (((1.02, 1.06), "modest"), ((0.98, 1.06), None)):
            asked: list[str] = []

            def confirm(graph: Graph, plan: Any = None, *, ci: Any = confirmed, seen: list[str] = asked) -> Latency:
                seen.append(graph.hash)
                return Latency(1.0, sum(ci) / 2, ci, 30, 1.0)

            problem._confirmed.clear()
            problem.meter.confirm = confirm  # type: ignore[attr-defined]
            found = conclude(search, "test")
            assert found.is_original if result is None else found.graph.hash == self.graphs[result].hash
            assert asked == [visits[0].graph.hash]

    def test_the_last_finalist_has_the_fewest_rewrites(self, problem: Problem) -> None:
        search = Search(problem, Budget())
        for graph in [c.apply() for c in problem.rewriter.candidates(problem.model.graph)[3:7]]:
            latency = Latency(1.0, 1.3, (1.15, 1.45), 10, 1.3)
            problem._memo |= {(graph.hash, "screen"): latency, (graph.hash, "full"): latency}
            search.measure(graph, (Action("key", "R", "R", 1),) * 9)
        self.visit(search, "lucky", 1.20, 4)
        self.visit(search, "modest", 1.05, 2)
        assert self.graphs["modest"].hash in {visit.graph.hash for visit in finalists_of(search)}
        self.visit(search, "leader", 0.95, 1)  # surely slower than the best: no finalist, however short
        assert self.graphs["leader"].hash not in {visit.graph.hash for visit in finalists_of(search)}
