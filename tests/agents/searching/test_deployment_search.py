"""Deployment choices at the end of searches: kept where they gain, within the budget, replayable."""

from pathlib import Path

import numpy as np
import pytest
from onnx import helper, numpy_helper

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, Search
from agents.searching.deployment_search import search_deployment
from agents.taso import TasoAgent
from graph_rewrite import Graph, Rewriter
from graph_rewrite.latency import Latency, MeasurementError, Plan
from graph_rewrite.rewriting.deployment_choices import deployment_candidates
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.toys import RULES, graph_cost, problem_on
from tests.envs.fakes import _write

FACTORS = {"MatMulAddFusion": 0.8, "BiasGeluFusion": 0.9, "MatmulTransposeFusion": 1.2}
"""Factor on the latency by refusing each of these."""


def make_problem(folder: Path, deployment: bool = True) -> Problem:
    """MatMul, Add, Gelu, Transpose, MatMul, Relu: three choices at first, and BiasGeluFusion once another is made."""
    weights = [numpy_helper.from_array(np.full((3, 3), 0.5, np.float32), name) for name in ("w", "v")]
    weights.append(numpy_helper.from_array(np.ones(3, np.float32), "b"))
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Add", ["m", "b"], ["a"]),
        helper.make_node("Gelu", ["a"], ["g"]),
        helper.make_node("Transpose", ["g"], ["t"], perm=[1, 0]),
        helper.make_node("MatMul", ["t", "v"], ["p"]),
        helper.make_node("Relu", ["p"], ["y"]),
    ]
    path = _write(folder / "model.onnx", nodes, weights, (3, 3), "y")
    return problem_on(path, folder, Rewriter(RULES, "site", deployment), refused=FACTORS)


def started(problem: Problem, budget: Budget) -> Search:
    search = Search(problem, budget)
    search.measure(problem.model.graph, ())
    return search


def test_choices_that_gain_are_kept_also_those_that_another_makes_possible(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    offered = {name for c in deployment_candidates(problem.model.graph) for name in c.disabled_optimizers}
    assert "BiasGeluFusion" not in offered
    search = started(problem, Budget(50, 60.0))
    best = search_deployment(search)
    assert best is not None
    assert best.graph.disabled_optimizers == {"MatMulAddFusion", "BiasGeluFusion"}
    assert best.latency.speedup == pytest.approx(1 / (0.8 * 0.9))
    result = conclude(search, "test")
    assert result.graph.hash == best.graph.hash
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash


def test_a_choice_that_was_only_lucky_is_not_kept(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    compared: list[tuple[str, str]] = []

    def slower(reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
        compared.append((reference.hash, candidate.hash))
        return Latency(1.0, 0.99, (0.98, 1.0), 10, 0.99)

    problem.meter.compare = slower  # type: ignore[attr-defined]
    search = started(problem, Budget(50, 60.0))
    best = search_deployment(search)
    assert best is not None
    assert best.graph.hash == problem.model.graph.hash
    assert {reference for reference, _ in compared} == {problem.model.graph.hash}
    assert len(compared) < search.measurements - 1  # what seemed to gain nothing is not compared


def test_optimisers_that_do_nothing_here_are_not_measured(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    asked: list[frozenset[str]] = []

    def active(graph: Graph) -> frozenset[str]:
        asked.append(graph.disabled_optimizers)
        return frozenset({"MatMulAddFusion", "BiasGeluFusion"}) - graph.disabled_optimizers

    problem.meter.active_optimizers = active  # type: ignore[attr-defined]
    search = started(problem, Budget(50, 60.0))
    best = search_deployment(search)
    assert best is not None
    assert best.graph.disabled_optimizers == {"MatMulAddFusion", "BiasGeluFusion"}
    tried = {name for visit in search.visits.values() for name in visit.graph.disabled_optimizers}
    assert tried == {"MatMulAddFusion", "BiasGeluFusion"}
    # Once for each graph that choices were tried on.
    assert len(asked) == len(set(asked)) == 3


def test_where_nothing_can_be_told_all_are_measured(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)

    def fails(graph: Graph) -> frozenset[str]:
        raise MeasurementError("cannot be opened")

    problem.meter.active_optimizers = fails  # type: ignore[attr-defined]
    search = started(problem, Budget(50, 60.0))
    search_deployment(search)
    assert any("MatmulTransposeFusion" in visit.graph.disabled_optimizers for visit in search.visits.values())


def test_what_it_offers_is_what_the_rewriter_offers(tmp_path: Path) -> None:
    graph = make_problem(tmp_path).model.graph
    offered = [c.key for c in Rewriter(RULES, "site", True).candidates(graph) if c.kind == "deployment"]
    assert [c.key for c in deployment_candidates(graph)] == offered


@pytest.mark.parametrize(
    "budget", [Budget(3, 60.0), Budget(50, 60.0, applications=2), Budget(1, 60.0), Budget(50, 60.0, applications=0)]
)
def test_the_budget_holds(tmp_path: Path, budget: Budget) -> None:
    search = started(make_problem(tmp_path), budget)
    search_deployment(search)
    assert search.measurements <= budget.measurements
    assert budget.applications is None or search.applications <= budget.applications


@pytest.mark.parametrize(("cost", "measured"), [(9.0, 0), (0.0, 3)])
def test_no_measurement_begins_that_would_take_longer_than_its_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cost: float, measured: int
) -> None:
    problem = make_problem(tmp_path)
    search = started(problem, Budget(seconds=60.0))
    monkeypatch.setattr(problem, "cost", lambda graph: cost)
    search_deployment(search, margin=1.0, share=0.1)
    assert search.measurements == 1 + measured


def test_what_is_known_already_is_not_tried(tmp_path: Path) -> None:
    search = started(make_problem(tmp_path), Budget(50, 60.0))
    best = search_deployment(search, without={"refuse MatMulAddFusion"})
    assert best is search.best
    assert all("MatMulAddFusion" not in visit.graph.disabled_optimizers for visit in search.visits.values())
    assert search.measurements > 1


def test_nothing_happens_with_a_fixed_deployment_or_without_a_start(tmp_path: Path) -> None:
    problem = make_problem(tmp_path, deployment=False)
    search = started(problem, Budget())
    assert search_deployment(search) is search.best
    assert search.measurements == 1
    assert search_deployment(Search(make_problem(tmp_path), Budget())) is None


def test_taso_refuses_optimisers_at_its_end_but_not_before(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    agent = TasoAgent(alpha=2.0, cost=graph_cost)
    result = agent.optimize(problem, Budget(50, 60.0))
    assert result.graph.disabled_optimizers == {"MatMulAddFusion", "BiasGeluFusion"}
    kinds = [action.rule.startswith("refuse") for action in result.actions]
    assert kinds == sorted(kinds)
    assert kinds.count(False) == 3
    pure = TasoAgent(alpha=2.0, deployment=False, cost=graph_cost).optimize(problem, Budget(50, 60.0))
    assert not pure.graph.disabled_optimizers


def test_taso_leaves_applications_for_deployment_search(tmp_path: Path) -> None:
    problem = make_problem(tmp_path)
    result = TasoAgent(alpha=2.0, cost=graph_cost).optimize(problem, Budget(50, 60.0, applications=12))
    assert result.applications <= 12
    assert result.graph.disabled_optimizers
