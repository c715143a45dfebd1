"""TENSAT and tree search over e-graphs: the graphs they find, budgets, prices, options."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.egraph.base import UNPRICED_MS, NodePrices, source_nodes
from agents.egraph.tensat import TensatAgent
from agents.egraph_mcts.agent import EGraphMCTSAgent
from agents.egraph_mcts.search import ConstructionOptions
from agents.searching.cost_model import OperatorPrices
from graph_rewrite.egraph import from_graph
from graph_rewrite.task.problem import Problem
from tests.agents.toys import WEIGHTS, chain_problem, costs_of_all, graph_cost

OpenTower = Callable[..., Problem]
PRICES = OperatorPrices(lambda spec: WEIGHTS.get(spec.op, 1.0))
AGENTS = (TensatAgent, EGraphMCTSAgent)
LONG = Budget(measurements=100, seconds=1000.0)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("sites", [1, 3])
def test_the_optimum_is_found_and_valid(tmp_path: Path, agent: Any, sites: int) -> None:
    problem = chain_problem(tmp_path, sites)
    result = agent(prices=PRICES).optimize(problem, LONG)
    assert graph_cost(result.graph) == costs_of_all(sites)[0]
    assert result.verified
    assert {"ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip", "Extraction"} >= set(result.rule_histogram)
    assert result.actions[-1].key == f"extract {result.graph.hash}"


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("rerank", [1, 5])
def test_a_wrong_cost_model_gives_the_original_back(tmp_path: Path, agent: Any, rerank: int) -> None:
    """By its operator alone LeakyRelu, which is slower, seems best."""
    wrong = OperatorPrices(lambda spec: {"LeakyRelu": 1.0, "Clip": 4.0}.get(spec.op, 3.0))
    result = agent(prices=wrong, rerank=rerank).optimize(chain_problem(tmp_path, 1), LONG)
    assert result.is_original
    assert result.latency.speedup == 1.0
    assert result.measurements >= min(rerank, 2)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("budget", [Budget(2, 60.0), Budget(50, 60.0, applications=2), Budget(0, 60.0), Budget(5, 0.0)])
def test_budgets_hold(tmp_path: Path, agent: Any, budget: Budget) -> None:
    result = agent(prices=PRICES).optimize(chain_problem(tmp_path, 2), budget)
    assert result.measurements <= budget.measurements
    assert budget.applications is None or result.applications <= budget.applications
    assert result.verified


@pytest.mark.parametrize("agent", AGENTS)
def test_a_few_applications_are_not_all_left_for_the_choices_of_deployment(open_tower: OpenTower, agent: Any) -> None:
    problem = open_tower(2, "both")
    assert problem.rewriter.deployment
    result = agent(prices=PRICES).optimize(problem, Budget(50, 60.0, applications=12))
    assert any(growth.rule for growth in result.growth)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_larger_model_is_improved_by_rules_of_the_library(open_tower: OpenTower, agent: Any) -> None:
    prices = OperatorPrices(lambda spec: 2.0 if spec.op == "Transpose" else 1.0)
    problem = open_tower(2)
    result = agent(prices=prices).optimize(problem, Budget(20, 3.0))
    assert result.verified
    assert result.latency.speedup > 1.0
    assert len(result.graph.nodes) < len(problem.model.original.nodes)


def test_operators_that_cannot_be_run_or_come_too_late_cost_much(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    egraph = from_graph(problem.model.graph)
    failing = OperatorPrices(lambda spec: math.inf if spec.op == "Relu" else 2.0)
    in_time = NodePrices(Search(problem, Budget()), failing).cost
    late = NodePrices(Search(problem, Budget(seconds=0.0)), OperatorPrices(lambda spec: 2.0)).cost
    relu = egraph.with_operator("Relu", "")[0]
    other = egraph.roots[0]
    assert egraph.operator(other).op != "Relu"
    assert (in_time(egraph, relu), in_time(egraph, other)) == (UNPRICED_MS, 2.0)
    assert late(egraph, other) == UNPRICED_MS
    assert {relu, other} <= source_nodes(egraph)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("tensat:k_multi=-1", "k_multi must be 0 or more"),
        ("tensat:final=greedy", "final must be one of tree, shared, dag, ilp, not 'greedy'"),
        ("tensat:share=0", "share above 0"),
        ("egraph-mcts:budget=0", "budget, node_limit, rerank and in_flight must be 1 or more"),
        ("egraph-mcts:stop_probability=1.5", "stop_probability must lie in 0..1"),
        ("egraph-mcts:main=greedy", "main must be one of"),
    ],
)
def test_wrong_options_are_refused(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_agent(spec)


def test_defaults_are_as_published() -> None:
    published = ConstructionOptions(128, 10, 2000, 2 * math.sqrt(2), 0.5, "shared", True)
    agent: Any = make_agent("egraph-mcts")
    assert dataclasses.astuple(agent.options) == dataclasses.astuple(published)
    assert agent.final == "ilp"
