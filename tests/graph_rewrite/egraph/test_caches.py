"""Caches between applications change nothing but the time: targets, shared matches, flat arrays."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import all_rules
from graph_rewrite.egraph import EGraph, apply_rule, from_graph, saturate
from graph_rewrite.egraph.costs import SharedCostTracker, unit_cost
from graph_rewrite.egraph.matching import SharedMatches
from graph_rewrite.egraph.saturation import is_multi_pattern
from graph_rewrite.egraph.structure import fingerprint
from graph_rewrite.egraph.structure.arrays import topological_ranks
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.models import open_model
from tests.envs.fakes import write_tower
from tests.graph_rewrite.egraph.algebra import phase_ordering_rules, term_egraph

FAMILIES = ("elimination", "movement", "fusion", "matmul", "matmul_parallel", "elementwise", "fusion_matmul")


@pytest.fixture(scope="module")
def tower(tmp_path_factory: pytest.TempPathFactory) -> EGraph:
    return from_graph(open_model(f"file:{write_tower(tmp_path_factory.mktemp('t') / 'tower.onnx')}").graph)


@pytest.fixture(scope="module")
def rules(tower: EGraph) -> list[Rule]:
    """Rules that match the tower, the ones with most matches first."""
    matches = {rule: apply_rule(tower.fork(), rule).matches for rule in all_rules() if rule.family in FAMILIES}
    return sorted((rule for rule in matches if matches[rule]), key=lambda rule: -matches[rule])


def content(egraph: EGraph) -> tuple[Any, ...]:
    return fingerprint(egraph), egraph.size, len(egraph.classes())


@settings(max_examples=8, deadline=None)
@given(picks=st.lists(st.tuples(st.integers(0, 10**6), st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_an_e_graph_grows_the_same_with_and_without_caches(
    tower: EGraph, rules: list[Rule], picks: list[tuple[int, bool, bool]]
) -> None:
    """Forks, new bases and rules in any order; the second e-graph matches and builds everything anew."""
    cached, plain = tower.fork(), tower.fork()
    cached.base = SharedMatches(cached)
    for pick, forked, rebased in picks:
        if forked:
            apply_rule(cached.fork(), rules[(pick + 1) % len(rules)])  # fills the memory that forks share
            cached = cached.fork()
        if rebased:
            cached.base = SharedMatches(cached)
        rule = rules[pick % len(rules)]
        first = apply_rule(cached, rule, match_limit=None)
        second = apply_rule(plain, rule, match_limit=None, incremental=False, remember=False)
        assert first.changed == second.changed
        assert content(cached) == content(plain)


def test_a_base_gives_the_matches_of_the_matcher_in_its_order(tower: EGraph, rules: list[Rule]) -> None:
    from graph_rewrite.egraph.matching import EMatcher

    assert len(rules) > 3
    start = tower.fork()
    base = SharedMatches(start)
    shuffled = rules.copy()
    random.Random(3).shuffle(shuffled)
    for rule in shuffled[:6]:
        apply_rule(start, rule)
    for rule in rules:
        anew = [tuple(found.nodes.values()) for found in EMatcher(start, rule.pattern, rule.symmetric).matches()]
        grown = base.matches(start, rule, None)
        assert grown is not None
        assert sorted(tuple(found.nodes.values()) for found in grown) == sorted(anew)
        if not is_multi_pattern(rule):
            assert [tuple(found.nodes.values()) for found in grown] == anew
    assert base.matches(start, rules[0], 0) is None


def test_targets_are_remembered_by_what_a_rule_can_see(tower: EGraph, rules: list[Rule]) -> None:
    egraph = tower.fork()
    egraph.targets = {}
    rule = rules[0]
    first = apply_rule(egraph.fork(), rule)
    known = len(egraph.targets)
    assert 0 < known <= first.matches, "equal layers share their targets"
    again = apply_rule(egraph.fork(), rule)
    assert (again.matches, again.applied, again.added) == (first.matches, first.applied, first.added)
    assert len(egraph.targets) == known


def grounded_order(egraph: EGraph) -> list[int]:
    """A topological order of classes by brute force."""
    order: dict[int, None] = {}
    left = set(egraph.classes())
    while ready := [
        cls
        for cls in sorted(left)
        if all(arg < 0 or arg in order for node in egraph.members(cls) for arg in egraph.args(node))
    ]:
        order.update(dict.fromkeys(ready))
        left -= set(ready)
    return list(order)


def shared_cost(egraph: EGraph) -> float:
    """The greedy choice in plain Python, with sets."""
    needs: dict[int, frozenset[int]] = {}
    for cls in grounded_order(egraph):
        options = []
        for node in egraph.members(cls):
            if cls in egraph.constants and egraph.operator(node).kind != "constant":
                continue
            own = egraph.operator(node).kind == "operator"
            below = frozenset().union(*(needs[arg] for arg in egraph.args(node) if arg >= 0))
            free = cls in egraph.constants or all(arg in egraph.constants for arg in egraph.args(node) if arg >= 0)
            options.append(below | {cls} if own and not (free and egraph.args(node)) else below)
        needs[cls] = min(options, key=len)
    return float(len(frozenset().union(*(needs[cls] for cls in egraph.canonical_roots()))))


def test_ranks_and_shared_costs_are_those_of_brute_force(tower: EGraph, rules: list[Rule]) -> None:
    egraph = tower.fork()
    tracker = SharedCostTracker(egraph, unit_cost)
    for rule in rules[:6]:
        apply_rule(egraph, rule)
        tracker.update()
        ranks = topological_ranks(egraph)
        for cls in egraph.classes():
            assert all(0 <= ranks[arg] < ranks[cls] for n in egraph.members(cls) for arg in egraph.args(n) if arg >= 0)
        assert tracker.root_cost() == shared_cost(egraph)
        assert SharedCostTracker(egraph, unit_cost).root_cost() == tracker.root_cost()


def test_classes_on_or_above_a_cycle_have_no_rank() -> None:
    egraph = term_egraph(("Times", ("Plus", "a", "two"), "two"))
    inner = egraph.args(egraph.roots[0])[0]
    egraph.union(inner, egraph.roots[0])
    egraph.rebuild()
    ranks = topological_ranks(egraph)
    assert ranks[egraph.find(inner)] == -1
    assert all(ranks[cls] >= 0 for cls in egraph.classes() if not egraph.args(egraph.members(cls)[0]))


def test_rules_matched_as_an_iteration_begins_do_not_see_each_other() -> None:
    """Two iterations are needed where the second rule builds on what the first has added."""
    rules = [rule for rule in phase_ordering_rules() if rule.name in ("Divide", "Cancel", "One")]

    def iterations(matching: Any) -> int:
        egraph = term_egraph(("Over", ("Times", "a", "two"), "two"))
        return saturate(egraph, rules, matching=matching).iterations

    assert iterations("iteration") > iterations("application")


def test_both_ways_of_matching_saturate_to_the_same() -> None:
    rules = [rule for rule in phase_ordering_rules() if rule.name in ("Divide", "Cancel", "One", "Swap")]
    grown = []
    for matching in ("iteration", "application"):
        egraph = term_egraph(("Over", ("Times", "a", "two"), "two"))
        assert saturate(egraph, rules, matching=matching).saturated  # type: ignore[arg-type]
        grown.append(content(egraph)[1:])
    assert grown[0] == grown[1]
