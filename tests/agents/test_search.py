"""Random and greedy search on a meter without noise: budgets hold, results are checked, nothing gets slower."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.base import Budget, Search
from agents.registry import make_agent
from agents.validate import conclude
from envs.problem import Problem
from graph_rewrite.latency import Latency, MachineLock
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
    from agents.base import action_of

    search.measure(candidate.apply(), (action_of(candidate),))
    doubtful = Latency(1.0, 1.01, (0.99, 1.03), 10, 1.01)
    problem._memo = dict.fromkeys([(candidate.apply().hash, "screen"), (candidate.apply().hash, "full")], doubtful)
    search.visits = {key: replace(visit, latency=doubtful) for key, visit in search.visits.items()}
    result = conclude(search, "test")
    assert result.is_original
    assert (result.latency.speedup, result.latency.ci95) == (1.0, (1.0, 1.0))
    assert result.graph is problem.model.original
    assert "original is kept" in result.message


def test_wrong_results_are_never_returned(open_tower: OpenTower, monkeypatch: pytest.MonkeyPatch) -> None:
    from graph_rewrite.verify import Equivalence

    def unequal(*args: Any, **options: Any) -> Equivalence:
        return Equivalence(False, 0.5, 1e-4, "output 0 differs by 0.5")

    monkeypatch.setattr("agents.validate.equivalent", unequal)
    result = make_agent("greedy").optimize(open_tower(), Budget(measurements=30, seconds=60.0))
    assert result.is_original
    assert "output 0 differs" in result.message


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


def test_waiting_for_another_process_costs_no_search_its_seconds(open_tower: OpenTower, tmp_path: Path) -> None:
    holder = "import sys, time\nfrom graph_rewrite.latency import MachineLock\n"
    holder += "with MachineLock(sys.argv[1]):\n    print('held', flush=True)\n    time.sleep(1.0)"
    problem = open_tower()
    meter: Any = problem.meter
    measured = meter.measure

    def measure(*arguments: Any) -> Any:
        with MachineLock(tmp_path / "lock"):
            return measured(*arguments)

    meter.measure = measure
    search = Search(problem, Budget())
    command = [sys.executable, "-c", holder, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        began = time.monotonic()
        search.measure(problem.model.graph, ())
        waited = time.monotonic() - began
    assert waited > 0.5
    assert search.seconds < waited - 0.3
    assert problem.cost(problem.model.graph) < waited - 0.3


def test_unknown_agents_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"there is no agent 'gready'; there are .*greedy, mcts, ppo, random, regional, taso"
    ):
        make_agent("gready")
