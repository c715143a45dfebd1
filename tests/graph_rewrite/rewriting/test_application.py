"""Application of candidates: the new graph is valid, and the old one stays."""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite import Rewriter, Rule
from graph_rewrite.operators.evaluation import run_graph
from tests.graph_rewrite.rewriting.sample_rules import (
    CrossMerge,
    DropIdentity,
    DropNegOfNeg,
    FirstOfTwo,
    MergeMatMuls,
    MergeSums,
    NegateTwice,
    refusals,
    sites,
)
from tests.graph_rewrite.rules.checking import model, ops, weights
from tests.invariants import (
    assert_enumeration_is_fresh,
    assert_same_outputs,
    assert_well_formed,
    snapshot,
)

GRAPH = "(float[3] x) => (y, z) { a = Identity(x)  b = Abs(a)  c = Identity(b)  y = Relu(c)  z = Abs(b) }"


class TestApplication:
    def test_the_graph_before_is_not_changed(self) -> None:
        graph = model(GRAPH)
        before = snapshot(graph)
        for candidate in Rewriter([NegateTwice(), DropIdentity()]).candidates(graph):
            assert_well_formed(candidate.apply())
            assert candidate.apply().hash == candidate.apply().hash
        assert snapshot(graph) == before

    def test_a_class_is_applied_everywhere_but_where_sites_overlap(self) -> None:
        graph = model("(float[3] x) => (y) { a = Neg(x)  b = Neg(a)  c = Neg(b)  d = Neg(c)  e = Neg(d)  y = Exp(e) }")
        everywhere = Rewriter([DropNegOfNeg()], "class", deployment=False).candidates(graph)[0]
        assert everywhere.count == 4
        after = everywhere.apply()
        assert_well_formed(after)
        feeds = {"x": np.float32([1, -2, 3])}
        assert_same_outputs(run_graph(graph, feeds), after, feeds, 0.0, "Neg")
        assert len(after.nodes) < len(graph.nodes)

    def test_nothing_dead_is_left(self) -> None:
        unused = model(
            "(float[3] x) => (y) <bool t = {1}> {"
            " a = Neg(x)  b = Mul(a, w)  c = Abs(x)  d = Where(t, c, b)  y = Exp(d) }",
            w=weights(3),
        )
        (candidate,) = sites(unused, FirstOfTwo)
        assert ops(candidate.apply()) == ["Abs", "Exp"]
        assert candidate.apply().constants == {}
        shared = model(
            "(float[3] x) => (y, z) { s = Abs(x)  a = Neg(s)  b = Neg(a)  c = Neg(a)  y = Relu(b)  z = Relu(c) }"
        )
        everywhere = Rewriter([DropNegOfNeg()], "class", deployment=False).candidates(shared)[0]
        assert everywhere.count == 2
        assert ops(everywhere.apply()) == ["Abs", "Relu", "Relu"]


class TestCycles:
    TEXT = (
        "(float[2] x, float[2] p, float[2] q) => (y, z) { a = Abs(p)  y = Add(x, a)  b = Neg(SECOND)  z = Add(x, b) }"
    )

    def test_roots_that_depend_on_each_other_are_refused(self) -> None:
        apart, nested = (model(self.TEXT.replace("SECOND", name)) for name in ("q", "y"))
        assert len(sites(apart, MergeSums)) == 1
        assert sites(nested, MergeSums) == []
        assert "would make a cycle" in refusals(nested, MergeSums)[0]
        further = model(self.TEXT.replace("b = Neg(SECOND)", "e = Exp(y)  b = Neg(e)"))
        assert sites(further, MergeSums) == []
        assert "would make a cycle" in refusals(further, MergeSums)[0]

    def test_also_where_one_comes_to_depend_on_the_other_by_a_rewrite_elsewhere(self) -> None:
        class ReadTheOther(Rule):
            """Exp(q) = Exp(Identity(y)): not an equality, but what rules do to a graph"""

            def source(self, op: Any, q: Any) -> Any:
                return op.Exp(q)

            def target(self, op: Any, m: Any, q: Any) -> Any:
                other = next(v for v, name in m.graph.names.items() if name == "y")
                return op.Exp(op.Identity(m.ref(other)))

        text = self.TEXT.replace("b = Neg(SECOND)", "e = Exp(q)  g = Relu(e)  b = Neg(g)")
        graph = model(text)
        rewriter = Rewriter([MergeSums(), ReadTheOther()], "site", deployment=False)
        merge, read = rewriter.candidates(graph)
        assert_well_formed(merge.apply())
        after = read.apply()
        assert "MergeSums" not in [candidate.rule for candidate in rewriter.candidates(after)]
        assert_enumeration_is_fresh(rewriter, after)

    def test_also_within_one_application_of_a_class(self) -> None:
        """Two merges, each harmless alone: after the first, the roots of the second depend on each other."""
        graph = model(
            "(float[2,2] x, float[2,2] z) => (a, d) { a0 = MatMul(x, u)  s = Relu(a0)  b = MatMul(z, v)"
            " t = Relu(b)  c = MatMul(z, w)  e = Add(c, s)  d = MatMul(x, r)  k = Add(d, t)  a = Add(e, k) }",
            u=weights(2, 2), v=weights(2, 2, seed=1), w=weights(2, 2, seed=2), r=weights(2, 2, seed=3),
        )  # fmt: skip
        everywhere = Rewriter([MergeMatMuls()], "class", deployment=False).candidates(graph)[0]
        assert everywhere.count == 2
        feeds = {"x": weights(2, 2, seed=4), "z": weights(2, 2, seed=5)}
        after = everywhere.apply()
        assert_well_formed(after)
        assert_same_outputs(run_graph(graph, feeds), after, feeds, 1e-9, "two merges")


def test_two_merges_that_exclude_each_other_are_not_both_made() -> None:
    """(s1, m1) and (s2, m2) are pairs of which m1 reads s2 and m2 reads s1: once one pair is computed together, the
    other's first depends on its second."""
    graph = model(
        "(float[2] x, float[2] z, float[2] p) => (m1, m2) {"
        " a = Abs(p)  s1 = Add(x, a)  b = Abs(p)  s2 = Add(z, b)"
        " n1 = Neg(s2)  m1 = Mul(x, n1)  n2 = Neg(s1)  m2 = Mul(z, n2) }"
    )
    rewriter = Rewriter([CrossMerge()], "both", deployment=False)
    everywhere, first, second = rewriter.candidates(graph)
    assert (everywhere.count, first.count, second.count) == (2, 1, 1)
    feeds = {name: np.float32([1.5, -2.0]) + i for i, name in enumerate("xzp")}
    for candidate in (everywhere, first, second):
        after = candidate.apply()
        assert_well_formed(after)
        assert_same_outputs(run_graph(graph, feeds), after, feeds, 1e-9, candidate.description)
        assert ops(after).count("Concat") == 1
        assert_enumeration_is_fresh(rewriter, after)
