"""TASO's search against exhaustive enumeration, and what it does with its best graphs."""

import dataclasses
import math
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.core.base import Budget, Search
from agents.searching.cost_model import OperatorPrices, Pricing, SumOfOperators
from agents.taso import TasoAgent, backtracking_search
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.latency.graph_operators import operators_of
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.toys import chain_problem, costs_of_all, graph_cost
from tests.envs.fakes import cost

OpenTower = Callable[..., Problem]
UNLIMITED = Budget(measurements=10_000, seconds=math.inf)


def enumerate_costs(problem: Problem) -> list[float]:
    """Costs of every graph that can be reached, breadth first."""
    start = problem.model.graph
    seen, level = {start.hash: graph_cost(start)}, [start]
    while level:
        reached = [candidate.apply() for graph in level for candidate in problem.rewriter.candidates(graph)]
        level = [graph for graph in {g.hash: g for g in reached}.values() if graph.hash not in seen]
        seen |= {graph.hash: graph_cost(graph) for graph in level}
    return sorted(seen.values())


def search_costs(problem: Problem, alpha: float, **options: object) -> list[float]:
    search = Search(problem, UNLIMITED)
    found = backtracking_search(
        problem.model.graph, candidates=problem.rewriter.candidates, apply=search.apply, cost=graph_cost, alpha=alpha,
        **{"keep": 10**6, **options},  # type: ignore[arg-type]
    )  # fmt: skip
    return [ranked.cost for ranked in found]


@pytest.mark.parametrize("sites", [1, 2, 3, 4])
def test_without_limits_every_reachable_graph_is_visited_once(tmp_path: Path, sites: int) -> None:
    problem = chain_problem(tmp_path, sites)
    assert len(problem.model.graph.nodes) <= 8
    everything = enumerate_costs(problem)
    assert everything == costs_of_all(sites)
    assert search_costs(problem, math.inf) == everything


@pytest.mark.parametrize("sites", [2, 3])
def test_unlimited_taso_returns_the_optimum(tmp_path: Path, sites: int) -> None:
    problem = chain_problem(tmp_path, sites)
    result = TasoAgent(alpha=math.inf, iterations=0, cost=graph_cost).optimize(problem, UNLIMITED)
    assert graph_cost(result.graph) == costs_of_all(sites)[0]
    assert result.verified
    assert replay(problem, [action.key for action in result.actions]).hash == result.graph.hash
    assert result.rule_histogram == {"ReluAsThresholded": sites, "ThresholdedAsLeaky": sites, "LeakyAsClip": sites}


def test_alpha_decides_which_valleys_are_crossed(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    # Costs on the way: 7, 8, 9, 3.
    assert min(search_costs(problem, 1.0)) == 7.0
    assert min(search_costs(problem, 8.5 / 7)) == 7.0
    assert min(search_costs(problem, 9.5 / 7)) == 3.0


def test_alpha_one_is_greedy_and_goes_downhill(open_tower: OpenTower) -> None:
    problem = open_tower(2)
    found = backtracking_search(
        problem.model.graph, candidates=problem.rewriter.candidates, apply=lambda c: c.apply(), cost=cost, alpha=1.0,
        keep=1, iterations=50,
    )  # fmt: skip
    assert found[0].cost < cost(problem.model.graph)


@settings(max_examples=15, deadline=None)
@given(alphas=st.tuples(st.floats(1.0, 2.0), st.floats(1.0, 2.0)))
def test_a_larger_alpha_never_finds_less(tmp_path_factory: pytest.TempPathFactory, alphas: tuple[float, float]) -> None:
    problem = chain_problem(tmp_path_factory.mktemp("chain"), 2)
    low, high = (min(search_costs(problem, alpha)) for alpha in sorted(alphas))
    assert high <= low


def test_limits_end_the_search(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    assert len(search_costs(problem, math.inf, iterations=1)) == 1 + 3
    assert len(search_costs(problem, math.inf, keep=2)) == 2
    result = TasoAgent(alpha=math.inf, cost=graph_cost).optimize(problem, Budget(100, 60.0, applications=20))
    assert result.applications == 20


def test_the_pure_search_measures_its_best_once_and_nothing_else(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    result = TasoAgent(alpha=math.inf, rerank=1, deployment=False, cost=graph_cost).optimize(problem, UNLIMITED)
    assert result.measurements == 1
    assert graph_cost(result.graph) == costs_of_all(2)[0]


def test_measuring_the_best_few_mends_a_wrong_cost_model(tmp_path: Path) -> None:
    """A cost model that takes LeakyRelu for the best form: its second choice is the fastest."""
    problem = chain_problem(tmp_path, 1)

    def wrong(graph) -> float:  # type: ignore[no-untyped-def]
        ops = {node.op for node in graph.nodes.values()}
        return 1.0 if "LeakyRelu" in ops else 2.0 if "Clip" in ops else 3.0

    pure = TasoAgent(alpha=math.inf, rerank=1, cost=wrong).optimize(problem, UNLIMITED)
    assert pure.is_original
    ranked = TasoAgent(alpha=math.inf, rerank=2, cost=wrong).optimize(problem, UNLIMITED)
    assert [node.op for node in ranked.graph.order()] == ["Clip", "Tanh"]
    assert ranked.measurements == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [({"alpha": 0.9}, "alpha"), ({"rerank": 0}, "rerank"), ({"share": 0.0}, "share"), ({"alpha": math.nan}, "alpha")],
)
def test_wrong_options_are_refused(options: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TasoAgent(**options)  # type: ignore[arg-type]


def priced(seconds: list[str]) -> OperatorPrices:
    def time_alone(spec: OperatorSpec) -> float:
        seconds.append(spec.key)
        return 1.0 + len(spec.op) / 7

    return OperatorPrices(time_alone)


def test_costs_follow_rewrites_and_each_operator_is_timed_once(open_tower: OpenTower) -> None:
    problem = open_tower(3, "both")
    timed: list[str] = []
    prices = priced(timed)
    model = SumOfOperators(prices)
    graph = problem.model.graph
    model(graph)
    for number in range(6):
        candidates = problem.rewriter.candidates(graph)
        graph = candidates[(7 * number) % len(candidates)].apply()
        anew = math.fsum(prices.price(spec) for spec in operators_of(graph) if not spec.is_constant)
        assert model(graph) == anew
        assert model.by_node(graph).keys() == graph.nodes.keys()
    assert len(timed) == len(set(timed))


def test_pricing_takes_nothing_of_the_clock_of_a_search_and_ends(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    spec = next(iter(operators_of(problem.model.graph)))
    specs = [dataclasses.replace(spec, op=f"{spec.op}{i}") for i in range(6)]

    def slow(spec: OperatorSpec) -> float:
        time.sleep(0.05)
        return 1.0

    search = Search(problem, Budget(seconds=0.15))
    pricing = Pricing(OperatorPrices(slow), search)
    assert [pricing.price(spec) for spec in specs] == [1.0, 1.0, None, None, None, None]
    assert pricing.price(specs[0]) == 1.0
    assert search.seconds < 0.05


def test_a_graph_with_an_operator_that_came_too_late_is_not_taken(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 1)
    graph, prices = problem.model.graph, priced([])
    assert SumOfOperators(prices, Search(problem, Budget(seconds=0.0)))(graph) == math.inf
    # Another search has time of its own.
    assert SumOfOperators(prices, Search(problem, Budget(seconds=60.0)))(graph) < math.inf
