"""The project's own rules on e-graphs: the same matches as in graphs, targets that compute the same, limits, cycles."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rule, all_rules, load
from graph_rewrite.egraph import EGraph, apply_rule, can_match, find_matches, from_graph, saturate, to_graph
from graph_rewrite.egraph.costs import TreeCostTracker, costed, extract_graph, measured_cost
from graph_rewrite.egraph.extract import extract
from graph_rewrite.egraph.extract.tree import tree_costs
from graph_rewrite.egraph.structure.arrays import topological_ranks
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.matching import Matcher
from graph_rewrite.rewriting.patterns import COMMUTATIVE
from graph_rewrite.rules import find_rule
from tests.graph_rewrite.egraph.algebra import TermRule, find_term, term_egraph
from tests.graph_rewrite.egraph.test_egraph import consistent
from tests.graph_rewrite.sample_models import parsed, weights
from tests.invariants import assert_same_outputs, assert_well_formed
from tests.strategies import feeds_for, varied_models

RULES = all_rules()


def graph_of(text: str, *tensors: onnx.TensorProto) -> Graph:
    return normalise(load(parsed(text, *tensors)))[0]


def acyclic(egraph: EGraph) -> bool:
    ranks = topological_ranks(egraph)
    return all(ranks[cls] >= 0 for cls in egraph.classes())


@given(varied_models(max_blocks=4), st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
def test_a_graph_and_its_egraph_have_the_same_matches(model: onnx.ModelProto, rng: random.Random) -> None:
    graph, _ = normalise(load(model))
    egraph = from_graph(graph)
    operators = sum(egraph.operator(n).kind == "operator" for n in range(egraph.size))
    assert operators <= len(graph.nodes)
    if operators < len(graph.nodes):  # two sums of the same operands in another order are one e-node
        return
    value = egraph.values
    for rule in rng.sample(RULES, 60):
        expected = set(in_graph(graph, rule))
        found = set()
        for match in find_matches(egraph, rule):
            outputs = [tuple(value[c] for c in egraph.outputs_of(n)) for n in match.nodes.values()]
            found.add(frozenset(outputs) if rule.symmetric else tuple(outputs))
        assert found == expected, rule.name


def in_graph(graph: Graph, rule: Rule) -> Iterator[Any]:
    for node in graph.order():
        for match in Matcher(graph, rule.pattern, set(), rule.symmetric).at(node):
            bound = match._bindings.nodes
            outputs = [bound[p].outputs for p in bound]
            yield frozenset(outputs) if rule.symmetric else tuple(outputs)


@given(varied_models(max_blocks=3), st.randoms(use_true_random=False))
@settings(max_examples=12, deadline=None)
def test_every_choice_computes_the_same(model: onnx.ModelProto, rng: random.Random) -> None:
    graph, _ = normalise(load(model))
    feeds = feeds_for(model)
    expected = run_graph(graph, feeds)
    egraph = from_graph(graph)
    for rule in rng.sample(RULES, len(RULES)):
        apply_rule(egraph, rule, node_limit=400, limit="within", match_limit=40)
    consistent(egraph)
    assert acyclic(egraph)
    assert egraph.size <= 400 or egraph.size <= from_graph(graph).size
    # No cycle is left, so any member will do in any class.
    for _ in range(4):
        choice = {cls: rng.choice(egraph.members(cls)) for cls in egraph.classes()}
        chosen = to_graph(egraph, choice)
        assert_well_formed(chosen)
        assert_same_outputs(expected, chosen, feeds, 1e-5, "a random choice")


def test_bert_like_projections_merge_and_extract() -> None:
    graph = graph_of(
        "(float[4,8] x) => (float[4,8] y)"
        "{ q = MatMul(x, wq)  k = MatMul(x, wk)  v = MatMul(x, wv)  s = Mul(q, k)  y = Add(s, v) }",
        *(weights(name, 8, 8, seed=i) for i, name in enumerate(("wq", "wk", "wv"))),
    )
    egraph = from_graph(graph)
    report = apply_rule(egraph, find_rule("MergeThreeMatMuls"))
    assert report.applied == 1

    def price(spec: OperatorSpec) -> float:
        return 10.0 if spec.op == "MatMul" else 1.0

    best, extraction = extract_graph(egraph, measured_cost(price), "ilp")
    assert [node.op for node in best.order()] == ["MatMul", "Split", "Mul", "Add"]
    assert (extraction.cost, extraction.gap) == (13, 0)
    feeds = feeds_for(
        onnx.ModelProto.FromString(parsed("(float[4,8] x) => (float[4,8] y) { y = Neg(x) }").SerializeToString())
    )
    assert_same_outputs(run_graph(graph, feeds), best, feeds, 1e-6, "merged")


def test_rules_of_several_patterns_have_iterations_of_their_own() -> None:
    graph = graph_of(
        "(float[4,8] x) => (float[4,8] y) { q = MatMul(x, wq)  k = MatMul(x, wk)  y = Mul(q, k) }",
        *(weights(name, 8, 8, seed=i) for i, name in enumerate(("wq", "wk"))),
    )
    rules = [find_rule("MergeTwoMatMuls"), find_rule("Reassociate")]
    for k_multi in (0, 1, 2):
        result = saturate(from_graph(graph), rules, iterations=2, k_multi=k_multi)
        assert [one.rule for one in result.applications].count("MergeTwoMatMuls") == k_multi
        assert ("MergeTwoMatMuls" in result.by_rule()) == (k_multi > 0)


def test_what_is_undone_costs_nothing() -> None:
    graph = graph_of(
        "(float[2,3] x) => (float[2,3] y) { a = Transpose<perm=[1,0]>(x)  b = Relu(a)  y = Transpose<perm=[1,0]>(b) }"
    )
    egraph = from_graph(graph)
    result = saturate(egraph, [r for r in RULES if r.family in ("elimination", "movement")], node_limit=200)
    assert result.saturated
    assert acyclic(egraph)
    best, extraction = extract_graph(egraph)
    assert [node.op for node in best.order()] == ["Relu"]
    assert extraction.cost == 1
    assert result.by_rule()["TransposeAfterUnary"].applied > 0


def test_the_kinds_of_limit() -> None:
    swap = TermRule("swap", ("f", "?x", "?y"), ("f", "?y", "?x"))
    terms = [("f", f"a{i}", f"b{i}") for i in range(20)]
    after, within = term_egraph(*terms), term_egraph(*terms)
    report = apply_rule(after, swap, node_limit=65, limit="after")
    assert (after.size, report.applied, report.stopped) == (80, 20, False)
    report = apply_rule(within, swap, node_limit=65, limit="within")
    assert (within.size, report.applied, report.over_limit) == (65, 5, True)
    assert saturate(term_egraph(*terms), [swap], node_limit=65).stop == "node limit"
    assert saturate(term_egraph(*terms), [swap], node_limit=None).saturated
    within = term_egraph(*terms)
    assert saturate(within, [swap], node_limit=65, limit="within").stop == "node limit"
    assert within.size == 65


def test_a_match_limit_goes_on_where_it_stopped() -> None:
    swap = TermRule("swap", ("f", "?x", "?y"), ("f", "?y", "?x"))
    egraph = term_egraph(*(("f", f"a{i}", f"b{i}") for i in range(10)))
    reports = [apply_rule(egraph, swap, match_limit=4) for _ in range(2)]
    assert [(r.matches, r.applied, r.complete) for r in reports] == [(4, 4, False)] * 2
    result = saturate(egraph, [swap], match_limit=4)
    assert result.saturated
    assert all(find_term(egraph, ("f", f"b{i}", f"a{i}")) is not None for i in range(10))


def test_incremental_matching_finds_what_matching_from_scratch_finds() -> None:
    x, y, z = "?x", "?y", "?z"
    rules = [
        TermRule("left", ("f", x, ("f", y, z)), ("f", ("f", x, y), z)),
        TermRule("right", ("f", ("f", x, y), z), ("f", x, ("f", y, z))),
        TermRule("out", ("g", ("f", x, y)), ("f", ("g", x), ("g", y))),
        TermRule("in", ("f", ("g", x), ("g", y)), ("g", ("f", x, y))),
        TermRule("twice", ("g", ("g", x)), x),
    ]
    term: Any = "a0"
    for i in range(1, 6):
        term = ("f", term, ("g", f"a{i}"))
    sizes = []
    for incremental in (True, False):
        egraph = term_egraph(("g", term))
        for _ in range(20):
            reports = [apply_rule(egraph, rule, incremental=incremental) for rule in rules]
            consistent(egraph)
            assert acyclic(egraph)
            if not any(report.changed for report in reports):
                break
        reports = [apply_rule(egraph, rule, incremental=incremental) for rule in rules]
        sizes.append((egraph.size, len(egraph.classes()), sum(r.matches for r in reports) > 0))
    assert sizes[0][:2] == sizes[1][:2]
    assert (sizes[0][2], sizes[1][2]) == (False, True), "nothing is matched again, or all of it"


def test_rules_that_cannot_match_are_told() -> None:
    egraph = from_graph(graph_of("(float[2] x) => (float[2] y) { a = Neg(x)  y = Relu(a) }"))
    for rule in RULES:
        if apply_rule(egraph.fork(), rule).changed:
            assert can_match(egraph, rule), rule.name
    assert not can_match(egraph, find_rule("MergeThreeMatMuls"))


@given(st.randoms(use_true_random=False))
@settings(max_examples=25, deadline=None)
def test_tracked_tree_costs_are_those_computed_anew(rng: random.Random) -> None:
    x, y, z = "?x", "?y", "?z"
    rules = [
        TermRule("left", ("f", x, ("f", y, z)), ("f", ("f", x, y), z)),
        TermRule("distribute", ("f", x, ("Add", y, z)), ("Add", ("f", x, y), ("f", x, z))),
        TermRule("factor", ("Add", ("f", x, y), ("f", x, z)), ("f", x, ("Add", y, z))),
        TermRule("drop", ("f", "one", x), x),
        TermRule("same", ("Add", x, x), ("f", "two", x)),
    ]

    def term(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.2:
            return rng.choice(["a", "b", "one"])
        return (rng.choice(["f", "Add"]), term(depth - 1), term(depth - 1))

    egraph = term_egraph(term(3), term(2))
    prices = {"f": 3.0, "Add": 2.0, "two": 0.5}

    def cost(graph: EGraph, node: int) -> float:
        return prices.get(graph.operator(node).op, 1.0)

    tracker = TreeCostTracker(egraph, cost)
    for _ in range(8):
        apply_rule(egraph, rng.choice(rules), match_limit=20)
        tracker.update()
        arrays = costed(egraph, cost)
        fresh = tree_costs(arrays.graph)
        for i, cls in enumerate(arrays.classes):
            assert tracker.cost(cls) == pytest.approx(fresh.costs[i])
        assert tracker.root_cost() == pytest.approx(extract(arrays.graph, "tree").estimate)
        before, fork = tracker.root_cost(), egraph.fork()
        follower = tracker.fork(fork)
        apply_rule(fork, rng.choice(rules), match_limit=20)
        follower.update()
        assert tracker.root_cost() == before
        assert follower.root_cost() <= before + 1e-9
        choice = tracker.choice()
        assert all(choice[cls] in egraph.members(cls) for cls in arrays.classes)


def test_commutative_operators_match_in_either_order() -> None:
    assert "Add" in COMMUTATIVE
    rule = TermRule("absorb", ("Add", "?x", "zero"), "?x")
    for term in (("Add", "a", "zero"), ("Add", "zero", "a")):
        egraph = term_egraph(term)
        assert apply_rule(egraph, rule).applied == 1
        assert egraph.find(egraph.roots[0]) == find_term(egraph, "a")
