"""Simulations in processes of their own."""

import multiprocessing
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from agents.core.base import Budget, Search
from agents.egraph.base import NodePrices
from agents.egraph_mcts.search import ConstructionOptions, ConstructionSearch
from agents.egraph_mcts.workers import Pool, WorkerDied
from agents.searching.cost_model import OperatorPrices
from graph_rewrite import all_rules
from graph_rewrite.egraph import EGraph, from_graph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.task.problem import Problem

OpenTower = Callable[..., Problem]


@pytest.mark.skipif(not Pool.is_possible(), reason="processes are forked on Linux alone")
class TestWorkers:
    """Processes that simulate."""

    @staticmethod
    def construction(graph: Any, workers: int, prices: NodePrices, **options: Any) -> ConstructionSearch:
        rules = [rule for rule in all_rules() if rule.family in ("elimination", "movement", "fusion", "matmul")]
        return ConstructionSearch(
            from_graph(graph), rules, prices.cost, ConstructionOptions(budget=12, depth=4, node_limit=120, **options),
            np.random.default_rng(3), workers=workers, price=prices.price, needs_timing=prices.needs_timing,
        )  # fmt: skip

    def test_what_is_found_does_not_depend_on_who_simulates(self, tower_graph: Any, open_tower: OpenTower) -> None:
        search = Search(open_tower(1), Budget())
        found = []
        for workers in (1, 2, 3):
            asked: list[str] = []
            prices = OperatorPrices(lambda spec, asked=asked: asked.append(spec.op) or float(len(spec.op)))  # type: ignore[misc]
            with self.construction(tower_graph, workers, NodePrices(search, prices)) as construction:
                built, best = construction.run(), construction.best
                rules = [[one.rule for one in state.applications] for state in (built, best)]
                sizes = built.egraph.size, len(built.egraph.classes()), construction.simulations
                found.append((rules, sizes, built.cost, best.cost, set(asked)))
        assert found[0][0][0], "something was built"
        assert found[1] == found[0]
        assert found[2] == found[0]

    def test_operators_are_timed_while_nobody_simulates(self, tower_graph: Any, open_tower: OpenTower) -> None:
        pools: list[Any] = []
        computing: list[int] = []

        def time_alone(spec: OperatorSpec) -> float:
            computing.extend(len(pool._running) - len(pool._asking) for pool in pools)
            return 1.0

        prices = NodePrices(Search(open_tower(1), Budget()), OperatorPrices(time_alone))
        with self.construction(tower_graph, 3, prices) as construction:
            pools.append(construction._executor)
            construction.search()
        assert computing
        assert set(computing) == {0}

    def test_a_worker_that_dies_is_said(self, tower_graph: Any, open_tower: OpenTower) -> None:
        prices = NodePrices(Search(open_tower(1), Budget()), OperatorPrices(lambda spec: 1.0))
        with self.construction(tower_graph, 2, prices) as construction:
            pool: Any = construction._executor
            for process in pool._processes:
                process.kill()
                process.join()
            with pytest.raises(WorkerDied, match="out of memory"):
                construction.search()

    def test_an_error_in_a_worker_is_raised_here(self, tower_graph: Any) -> None:
        def cost(egraph: EGraph, node: int) -> float:
            if multiprocessing.current_process().name.startswith("egraph-mcts"):
                raise ArithmeticError("no such cost")
            return 1.0

        rules = [rule for rule in all_rules() if rule.family in ("elimination", "movement")]
        construction = ConstructionSearch(
            from_graph(tower_graph), rules, cost, ConstructionOptions(budget=4), np.random.default_rng(0), workers=2
        )
        with construction, pytest.raises(ArithmeticError, match="no such cost"):
            construction.search()

    def test_no_process_is_left(self, tower_graph: Any, open_tower: OpenTower) -> None:
        prices = NodePrices(Search(open_tower(1), Budget()), OperatorPrices(lambda spec: 1.0))
        construction = self.construction(tower_graph, 2, prices)
        pool: Any = construction._executor
        processes = [*pool._processes]
        assert len(processes) == 2
        construction.close()
        assert not any(process.is_alive() for process in processes)
