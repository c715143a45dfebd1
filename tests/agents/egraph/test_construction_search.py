"""Tree search over the construction of an e-graph: the order of rules that it finds, values and visits, costs."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.egraph_mcts.search import ConstructionOptions, ConstructionSearch
from graph_rewrite import all_rules
from graph_rewrite.egraph import EGraph, apply_rule, from_graph
from graph_rewrite.egraph.costs import NodeCost, SharedCostTracker, costed, unit_cost
from graph_rewrite.egraph.extract import extract
from graph_rewrite.egraph.saturation import saturate
from graph_rewrite.egraph.structure import fingerprint
from tests.graph_rewrite.egraph.algebra import (
    PHASE_ORDERING_LIMIT,
    PHASE_ORDERING_TERM,
    phase_ordering_rules,
    term_egraph,
)


def search_construction(seed: int = 0, **options: Any) -> ConstructionSearch:
    return ConstructionSearch(
        term_egraph(PHASE_ORDERING_TERM), phase_ordering_rules(), unit_cost,
        ConstructionOptions(node_limit=PHASE_ORDERING_LIMIT, **options), np.random.default_rng(seed),
    )  # fmt: skip


def least(egraph: EGraph, method: Any = "ilp") -> float:
    return extract(costed(egraph, unit_cost).graph, method).cost


class TestPhaseOrdering:
    """(a * 2) / 2 of PACT'24, figure 2."""

    def test_sequential_application_fills_the_e_graph_before_it_finds_a(self) -> None:
        egraph = term_egraph(PHASE_ORDERING_TERM)
        saturate(egraph, phase_ordering_rules(), node_limit=PHASE_ORDERING_LIMIT)
        assert egraph.size >= PHASE_ORDERING_LIMIT
        assert least(egraph) > 1.0

    @pytest.mark.parametrize("main", ["tree", "shared", "dag", "ilp"])
    def test_tree_search_finds_a(self, main: Any) -> None:
        for seed in range(2):
            search = search_construction(seed, main=main, budget=48)
            built = search.run()
            assert least(built.egraph) == built.cost == search.best.cost == 1.0

    def test_without_simulations_to_speak_of_it_is_a_matter_of_luck(self) -> None:
        """The budget is what finds it: one simulation per rule, without rollouts, fails for some seeds."""
        found = [search_construction(seed, budget=1, depth=0).run().cost == 1.0 for seed in range(8)]
        assert not all(found)


def test_the_search_is_reproducible_and_does_not_touch_the_start() -> None:
    start = term_egraph(PHASE_ORDERING_TERM)
    size = start.size

    def run() -> list[str]:
        options = ConstructionOptions(budget=32, node_limit=PHASE_ORDERING_LIMIT)
        rng = np.random.default_rng(7)
        built = ConstructionSearch(start, phase_ordering_rules(), unit_cost, options, rng).run()
        return [one.rule for one in built.applications]

    assert run() == run()
    assert start.size == size


def test_values_are_sums_of_rewards_and_saturated_rules_are_pruned() -> None:
    search = search_construction(budget=40)
    search.search()
    root = search.root
    children = list(root.children.values())
    assert root.visits == search.simulations <= 40
    assert root.in_flight == 0
    assert not root.tried
    assert sum(child.visits for child in children) == root.visits
    assert root.value == pytest.approx(sum(child.value for child in children))
    assert all(child.facts.cost <= search.first.cost for child in children)
    for number in root.blacklist:
        rule = phase_ordering_rules()[number]
        assert not apply_rule(search.first.egraph.fork(), rule, incremental=False).changed


def test_no_time_leaves_the_e_graph_as_it_was() -> None:
    search = ConstructionSearch(
        term_egraph(PHASE_ORDERING_TERM), phase_ordering_rules(), unit_cost, ConstructionOptions(),
        np.random.default_rng(0),        seconds_left=lambda: 0.0,
    )  # fmt: skip
    assert search.run().applications == ()


def test_more_simulations_at_once_count_as_visits_and_none_is_lost() -> None:
    for in_flight in (1, 2, 7):
        search = search_construction(budget=48, in_flight=in_flight)
        search.search()
        assert search.root.visits <= 48
        waiting = [search.root]
        while waiting:
            node = waiting.pop()
            assert (node.in_flight, node.tried) == (0, [])
            waiting.extend(node.children.values())
        assert search.run().cost == 1.0


def odd_cost(egraph: EGraph, node: int) -> float:
    """Differs by operator and by number of operands, and is no whole number."""
    return 1.0 + sum(map(ord, egraph.operator(node).op)) % 7 + len(egraph.args(node)) / 3


@settings(max_examples=6, deadline=None)
@given(picks=st.lists(st.integers(0, 10**6), max_size=8), cost=st.sampled_from([unit_cost, odd_cost]))
def test_the_tracker_follows_the_e_graph(tower_graph: Any, picks: list[int], cost: NodeCost) -> None:
    rules = [rule for rule in all_rules() if rule.family in ("elimination", "movement", "fusion", "merging")]
    egraph = from_graph(tower_graph)
    tracker = SharedCostTracker(egraph, cost)
    assert tracker.root_cost() == pytest.approx(least_by(egraph, cost, "ilp"))
    for pick in picks:
        before = tracker.root_cost()
        egraph = egraph.fork()
        following = tracker.fork(egraph)
        apply_rule(egraph, rules[pick % len(rules)])
        following.update()
        arrays = costed(egraph, cost)
        place = {cls: number for number, cls in enumerate(arrays.classes)}
        chosen = {place[cls]: node for cls, node in following.choice().items() if cls in place}
        numbers = {node: number for number, node in enumerate(arrays.nodes)}
        true = arrays.graph.dag_cost({cls: numbers[egraph.find_equal(node) or node] for cls, node in chosen.items()
                                      if (egraph.find_equal(node) or node) in numbers})  # fmt: skip
        assert following.root_cost() == pytest.approx(true)
        assert following.root_cost() >= least_by(egraph, cost, "ilp") - 1e-9
        assert tracker.root_cost() == before
        tracker = following


def least_by(egraph: EGraph, cost: NodeCost, method: Any) -> float:
    return extract(costed(egraph, cost).graph, method).cost


def test_fingerprints_do_not_depend_on_the_order_of_independent_rules() -> None:
    rules = {rule.name: rule for rule in phase_ordering_rules()}
    start = term_egraph(PHASE_ORDERING_TERM)
    built = []
    for order in (("Shift", "Invert"), ("Invert", "Shift")):
        egraph = start.fork()
        for name in order:
            apply_rule(egraph, rules[name])
        built.append(egraph)
    assert fingerprint(built[0]) == fingerprint(built[1])
    once = start.fork()
    apply_rule(once, rules["Shift"])
    assert len({fingerprint(graph) for graph in (start, once, built[0])}) == 3
