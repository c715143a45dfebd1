"""Constructions as published, timed on a model whose costs are known."""

from pathlib import Path

import pytest
from rich.console import Console

import agents.egraph.base
from agents.searching.cost_model import OperatorPrices
from benchmarks.egraphs import construction
from benchmarks.egraphs.construction import Arguments, saturation, tree_search
from tests.agents.toys import WEIGHTS, chain_problem, costs_of_all

RUN_MS = 1.0
"""Time that this meter gives a run of any graph beside its operators."""


def test_both_constructions_find_the_cheapest_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = OperatorPrices(lambda spec: WEIGHTS.get(spec.op, 1.0))
    for module in (construction, agents.egraph.base):
        monkeypatch.setattr(module, "operator_prices", lambda problem: prices)
    problem = chain_problem(tmp_path, 2)
    costs = [cost - RUN_MS for cost in costs_of_all(2)]
    for built in (saturation(problem), tree_search(problem, Arguments(), 1, Console(quiet=True))):
        assert built.cost_ms == pytest.approx(costs[0])
        assert built.original_ms > built.cost_ms
        assert built.rules > 0
        assert built.seconds >= built.pricing_seconds >= 0.0
        assert built.e_nodes > len(problem.model.graph.nodes)
