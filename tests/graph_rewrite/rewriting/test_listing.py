"""Lists of candidates: complete, without duplicates, in one order."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rewriting.matching import MOST_SIBLINGS, _nearest
from graph_rewrite.rules import find_rule
from tests.graph_rewrite.rewriting.sample_rules import (
    DropIdentity,
    MergeMatMuls,
    NegateTwice,
    SumOnce,
    sites,
)
from tests.graph_rewrite.rules.checking import model, weights
from tests.invariants import (
    assert_enumeration_is_fresh,
)


class TestListing:
    GRAPH = "(float[3] x) => (y, z) { a = Identity(x)  b = Abs(a)  c = Identity(b)  y = Relu(c)  z = Abs(b) }"

    def test_granularities(self) -> None:
        graph = model(self.GRAPH)
        rules = [NegateTwice(), DropIdentity()]

        def kinds(granularity: Any, deployment: bool = False) -> list[tuple[str, str, int]]:
            found = Rewriter(rules, granularity, deployment).candidates(graph)
            return [(candidate.kind, candidate.rule, candidate.count) for candidate in found]

        each = [("site", "NegateTwice", 1)] * 2 + [("site", "DropIdentity", 1)] * 2
        assert kinds("site") == each
        assert kinds("class") == [("class", "NegateTwice", 2), ("class", "DropIdentity", 2)]
        assert kinds("both") == [("class", "NegateTwice", 2), ("class", "DropIdentity", 2), *each]
        with pytest.raises(ValueError, match="granularity must be"):
            Rewriter(rules, "all")  # type: ignore[arg-type]

    def test_a_class_of_one_is_no_class_beside_its_site(self) -> None:
        graph = model("(float[3] x) => (y) { a = Abs(x)  y = Relu(a) }")
        assert [c.kind for c in Rewriter([NegateTwice()], "both", False).candidates(graph)] == ["site"]
        assert [c.kind for c in Rewriter([NegateTwice()], "class", False).candidates(graph)] == ["class"]

    def test_classes_need_equal_shapes_and_attributes(self) -> None:
        graph = model(
            "(float[2,3] x, float[3,2] z) => (a, b, c) { a = MatMul(x, v)  b = MatMul(x, w)"
            " s = MatMul(z, t)  u = MatMul(z, r)  c = Add(s, u) }",
            v=weights(3, 2), w=weights(3, 2), t=weights(2, 4), r=weights(2, 4),
        )  # fmt: skip
        classes = Rewriter([MergeMatMuls()], "class", deployment=False).candidates(graph)
        assert [candidate.count for candidate in classes] == [1, 1]

    def test_one_way_to_one_graph_is_listed_once(self) -> None:
        graph = model("(float[3] x) => (y) { a = Sum(x, x)  y = Relu(a) }")
        assert len(sites(graph, SumOnce)) == 1

        class Again(SumOnce):
            """Sum(x, ..., x) = Mul(x, n), by another name"""

        assert [candidate.rule for candidate in sites(graph, SumOnce, Again)] == ["SumOnce"]

    def test_order_is_that_of_rules_and_then_of_the_graph(self) -> None:
        graph = model(self.GRAPH)
        found = [candidate.description for candidate in sites(graph, NegateTwice, DropIdentity)]
        assert found == [
            "NegateTwice at b: Abs -> Abs Neg Neg",
            "NegateTwice at z: Abs -> Abs Neg Neg",
            "DropIdentity at a: Identity -> nothing",
            "DropIdentity at c: Identity -> nothing",
        ]

    def test_deployment_choices_change_the_graph_and_come_back(self) -> None:
        graph = model("(float[2,3] x) => (y) { t = MatMul(x, w)  y = Add(t, b) }", w=weights(3, 3), b=weights(3))
        rewriter = Rewriter([])
        (refuse,) = [c for c in rewriter.candidates(graph) if c.rule == "refuse MatMulAddFusion"]
        after = refuse.apply()
        assert after.disabled_optimizers == {"MatMulAddFusion"}
        assert after.hash != graph.hash
        (keep,) = [c for c in rewriter.candidates(after) if c.rule == "keep MatMulAddFusion"]
        assert keep.apply().hash == graph.hash


@pytest.mark.parametrize("kind", ["site", "class"])
def test_many_changes_at_once_keep_the_order(kind: str) -> None:
    """Make more changes than are put into the listing one by one: each of 30 products that share an operand may join
    any other."""
    text = " ".join(f"p{i} = MatMul(a{i}, w) y{i} = Relu(p{i})" for i in range(30))
    inputs = ", ".join(f"float[2,4] a{i}" for i in range(30))
    graph = model(f"({inputs}) => ({', '.join(f'y{i}' for i in range(30))}) {{ {text} }}", w=weights(4, 4))
    rewriter = Rewriter()
    merges = [c for c in rewriter.candidates(graph) if c.rule == "MergeMatMulsSharedRight" and c.kind == kind]
    assert merges
    assert sum(site.rule.name == "MergeMatMulsSharedRight" for site in rewriter.sites(graph)) == 30 * 29 / 2
    for candidate in merges[:: max(1, len(merges) // 3)]:
        assert_enumeration_is_fresh(rewriter, candidate.apply())


def test_of_very_many_that_share_an_operand_the_next_are_paired() -> None:
    """Pairs grow with the number of operators, not with its square; neighbours are among them."""
    count, rule = 3 * MOST_SIBLINGS, "MergeMatMulsSharedRight"
    text = " ".join(f"y{i} = MatMul(a{i}, w)" for i in range(count))
    inputs = ", ".join(f"float[2,4] a{i}" for i in range(count))
    graph = model(f"({inputs}) => ({', '.join(f'y{i}' for i in range(count))}) {{ {text} }}", w=weights(4, 4))
    rewriter = Rewriter([find_rule(rule)], deployment=False)
    pairs = {tuple(sorted(node.id for node in site.removed)) for site in rewriter.sites(graph)}
    ids = [node.id for node in graph.order()]
    assert {tuple(sorted(pair)) for pair in itertools.pairwise(ids)} <= pairs
    assert len(pairs) <= count * MOST_SIBLINGS
    assert_enumeration_is_fresh(rewriter, rewriter.candidates(graph)[-1].apply())


def test_the_nearest_siblings_are_those_of_all() -> None:
    rng = np.random.default_rng(0)
    for count in (1, MOST_SIBLINGS, MOST_SIBLINGS + 1, 200):
        for _ in range(20):
            ids = np.sort(rng.choice(400, count, replace=False)).tolist()
            nodes: list[Any] = [SimpleNamespace(id=number) for number in ids]
            here = int(rng.integers(-10, 410))
            wanted = sorted(sorted(ids, key=lambda number: abs(number - here))[:MOST_SIBLINGS])
            assert [node.id for node in _nearest(nodes, here)] == wanted
