"""Greedy with a beam and look-ahead crosses valleys in which plain greedy stops; plain greedy stays what it was."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.greedy import GreedyAgent, MeasuredGraph, enabled, macro_candidates, ordered
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency, Plan
from graph_rewrite.task.problem import Problem
from tests.agents.toys import ExactMeter, chain_problem, costs_of_all, graph_cost

BUDGET = Budget(measurements=200, seconds=60.0)


def test_plain_greedy_stops_before_a_valley(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2, "both")
    result = make_agent("greedy").optimize(problem, BUDGET)
    assert result.is_original
    # Two sites and their class from the start, and nothing after.
    assert result.measurements == 4


@pytest.mark.parametrize("spec", ["greedy:beam=3,depth=3", "greedy:lookahead=2", "greedy:beam=3,lookahead=2"])
@pytest.mark.parametrize("granularity", ["class", "both"])
def test_beam_and_lookahead_cross_it(tmp_path: Path, spec: str, granularity: str) -> None:
    problem = chain_problem(tmp_path, 2, granularity)
    result = make_agent(spec).optimize(problem, BUDGET)
    assert graph_cost(result.graph) == costs_of_all(2)[0]
    assert result.agent == spec
    assert result.measurements <= BUDGET.measurements


def test_a_rollout_that_is_too_short_does_not(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    assert GreedyAgent(lookahead=1).optimize(problem, BUDGET).is_original
    assert GreedyAgent(beam=2, depth=2).optimize(problem, BUDGET).is_original


@pytest.mark.parametrize("budget", [Budget(5, 60.0), Budget(100, 60.0, applications=7), Budget(1, 60.0)])
def test_budgets_hold_inside_rollouts(tmp_path: Path, budget: Budget) -> None:
    problem = chain_problem(tmp_path, 3, "both")
    result = GreedyAgent(beam=3, depth=3, lookahead=3).optimize(problem, budget)
    assert result.measurements <= budget.measurements
    assert budget.applications is None or result.applications <= budget.applications


def test_plain_greedy_takes_the_same_steps_as_before(tmp_path: Path) -> None:
    """Its definition, written out: from the start, the best neighbour while it gains."""
    problem = chain_problem(tmp_path, 3, "both")
    start = problem.model.graph
    for name in ("ReluAsThresholded", "ThresholdedAsLeaky"):
        start = next(c for c in problem.rewriter.candidates(start) if c.rule == name and c.count == 3).apply()
    downhill = Problem(
        type(problem.model)("m", problem.model.path, problem.model.original, start, problem.model.report),
        problem.rewriter, problem.meter, problem.deployment, problem.workspace,
    )  # fmt: skip
    result = GreedyAgent().optimize(downhill, Budget(5000, 60.0))
    graph = start
    while True:
        best = min((c.apply() for c in problem.rewriter.candidates(graph)), key=graph_cost, default=graph)
        if graph_cost(best) >= graph_cost(graph):
            break
        graph = best
    assert result.graph.hash == graph.hash
    assert [action.count for action in result.actions] == [3]


def test_rollouts_follow_what_a_rewrite_made_possible(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3, "both")
    start = problem.model.graph
    wide = ordered(problem.rewriter.candidates(start), np.random.default_rng(0))[0]
    assert (wide.kind, wide.count) == ("class", 3)
    after = wide.apply()
    found = macro_candidates(enabled(problem, start, after))
    assert sorted((c.rule, c.count) for c in found) == [("ThresholdedAsLeaky", 3), ("ThresholdedAsRelu", 3)]
    single = next(c for c in problem.rewriter.candidates(start) if c.kind == "site")
    found = enabled(problem, start, single.apply())
    assert {c.rule for c in found} == {"ThresholdedAsLeaky", "ThresholdedAsRelu"}


def test_sites_are_macros_where_classes_are_not_offered(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2, "site")
    candidates = Rewriter(problem.rewriter.rules, "site", False).candidates(problem.model.graph)
    assert macro_candidates(candidates) == list(candidates)


class LuckyOnce(ExactMeter):
    """Takes one graph for much faster than it is, at the first look at it."""

    lucky = ""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        latency = super().measure(graph, effort)
        speedup = 2.0 if graph.hash == self.lucky else latency.speedup
        return replace(latency, speedup=speedup, ci95=(0.5 * speedup, 1.2 * speedup))

    def confirm(self, graph: Graph, plan: Plan | None = None) -> Latency:
        latency = super().measure(graph)
        return replace(latency, ci95=(0.999 * latency.speedup, 1.001 * latency.speedup))


@pytest.mark.parametrize("racing", [True, False])
def test_luck_is_found_out_before_the_climb_goes_on(tmp_path: Path, racing: bool) -> None:
    problem = chain_problem(tmp_path, 2, "both")
    start = problem.model.graph
    wide = ordered(problem.rewriter.candidates(start), np.random.default_rng(0))[0]
    meter = LuckyOnce(problem.model.original)
    meter.lucky = wide.apply().hash
    problem.meter = meter
    search = Search(problem, BUDGET)
    climber = GreedyAgent(beam=1, depth=2, racing=racing)
    climber.climb(search, MeasuredGraph(start, (), search.measure(start, ()).speedup), np.random.default_rng(0))
    first_steps = {visit.actions[0].key for visit in search.visits.values() if len(visit.actions) == 2}
    assert len(first_steps) == 1
    assert (first_steps == {wide.key}) != racing


@pytest.mark.parametrize(
    "options", [{"beam": 0}, {"depth": 0}, {"lookahead": -1}, {"round_share": 0.0}, {"margin": -1.0}]
)
def test_wrong_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        GreedyAgent(**options)  # type: ignore[arg-type]
