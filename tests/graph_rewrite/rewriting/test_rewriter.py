"""Candidates: valid, complete, in one order, whether enumerated from scratch or after rewrites."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx
import pytest

from graph_rewrite import Candidate, Graph, Refusal, Rewriter, Rule, load
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.matching import MOST_SIBLINGS
from graph_rewrite.rewriting.patterns import Const, Values
from graph_rewrite.rules import find_rule
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.rules.checking import model, ops, weights
from tests.invariants import (
    assert_enumeration_is_fresh,
    assert_same_outputs,
    assert_well_formed,
    snapshot,
)


class DropIdentity(Rule):
    """Identity(x) = x"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Identity(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x


class DropNegOfNeg(Rule):
    """Neg(Neg(x)) = x"""

    shared_interior = True

    def source(self, op: Any, x: Any) -> Any:
        return op.Neg(op.Neg(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x


class NegateTwice(Rule):
    """Abs(x) = Neg(Neg(Abs(x)))"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(x)

    def check(self, m: Any, x: Any) -> Refusal | None:
        busy = any(node.op == "Neg" for node in m.consumers(m.root()))
        return Refusal("it is negated already") if busy else None

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Neg(op.Neg(op.Abs(x)))


class MergeMatMuls(Rule):
    """MatMul(x, v), MatMul(x, w) = Split(MatMul(x, Concat(v, w)))"""

    symmetric = True

    def source(self, op: Any, x: Any, v: Const, w: Const) -> Any:
        return op.MatMul(x, v), op.MatMul(x, w)

    def target(self, op: Any, m: Any, x: Any, v: Any, w: Any) -> Any:
        both = op.MatMul(x, op.Concat(v, w, axis=-1))
        return op.Split(both, op.ints(v.shape[-1], w.shape[-1]), axis=-1, _outputs=2)


class MergeSums(Rule):
    """Add(x, Abs(y)), Add(x, Neg(y)) = Split(Add(x, Concat(Abs(y), Neg(y)))): roots that may depend on each other"""

    def source(self, op: Any, x: Any, a: Any, b: Any) -> Any:
        return op.Add(x, op.Abs(a)), op.Add(x, op.Neg(b))

    def target(self, op: Any, m: Any, x: Any, a: Any, b: Any) -> Any:
        joined = op.Concat(op.Add(x, op.Abs(a)), op.Add(x, op.Neg(b)), axis=0)
        return op.Split(joined, axis=0, num_outputs=2, _outputs=2)


class SumOnce(Rule):
    """Sum(x, ..., x) = Mul(x, n)"""

    def source(self, op: Any, parts: Values) -> Any:
        return op.Sum(parts)

    def check(self, m: Any, parts: Any) -> Refusal | None:
        return None if len({part.external for part in parts}) == 1 else Refusal("the terms differ")

    def target(self, op: Any, m: Any, parts: Any) -> Any:
        return op.Mul(parts[0], op.constant(np.float32(len(parts))))


class Wrong(Rule):
    """Abs(x) = ReduceSum(x): gives another shape"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Abs(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.ReduceSum(x)


class Nothing(Rule):
    """Exp(Neg(x)) = Exp(Neg(x)): nothing changes"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Exp(op.Neg(x))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Exp(op.Neg(x))


class Exchange(Rule):
    """f(g(h(x))) = g(f(h(x))): not an equality, but the same operators and the same inputs in another order"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Exp(op.Neg(op.Abs(x)))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Neg(op.Exp(op.Abs(x)))


class FirstOfTwo(Rule):
    """Where(true, x, y) = x: y is not needed any more"""

    def source(self, op: Any, c: Const, x: Any, y: Any) -> Any:
        return op.Where(c, x, y)

    def target(self, op: Any, m: Any, c: Any, x: Any, y: Any) -> Any:
        return x if c.numpy().all() else Refusal("the condition is not always true")


def sites(graph: Graph, *rules: type[Rule]) -> list[Candidate]:
    return list(Rewriter([rule() for rule in rules], "site", deployment=False).candidates(graph))


def refusals(graph: Graph, rule: type[Rule]) -> list[str]:
    return [str(refusal) for refusal in Rewriter([rule()]).explain(graph)]


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


class TestRefusals:
    def test_reasons_name_rule_and_site(self) -> None:
        graph = model("(float[3] x, float[3] z) => (y) { a = Sum(x, z)  y = Relu(a) }")
        assert refusals(graph, SumOnce) == ["SumOnce at a: the terms differ"]
        assert sites(graph, SumOnce) == []

    @pytest.mark.parametrize(
        ("rule", "text", "reason"),
        [
            (
                Wrong,
                "(float[3] x) => (y) { a = Abs(x)  y = Relu(a) }",
                "the target gives float[1], the source float[3]",
            ),
            (Nothing, "(float[3] x) => (y) { a = Neg(x)  y = Exp(a) }", "what is there already"),
            (FirstOfTwo, "(float[3] x) => (y) <bool f = {0}> { y = Where(f, x, x) }", "not always true"),
            (DropIdentity, "(float[3] x) => (y) { y = Identity(x) }", "an output or a subgraph knows the value"),
            (
                DropIdentity,
                "(float[3] x) => (y, z) { y = Neg(x)  z = Identity(y) }",
                "an output or a subgraph knows the value",
            ),
        ],
    )
    def test_reasons(self, rule: type[Rule], text: str, reason: str) -> None:
        graph = model(text)
        assert sites(graph, rule) == []
        assert reason in refusals(graph, rule)[0]

    def test_another_order_of_the_same_operators_is_a_change(self) -> None:
        (candidate,) = sites(model("(float[3] x) => (y) { a = Abs(x)  b = Neg(a)  y = Exp(b) }"), Exchange)
        assert [node.op for node in candidate.apply().order()] == ["Abs", "Exp", "Neg"]

    def test_inner_results_used_elsewhere(self) -> None:
        class Unshared(DropNegOfNeg):
            """Neg(Neg(x)) = x, only where nothing else reads the inner one"""

            shared_interior = False

        used = model("(float[3] x) => (y, z) { s = Abs(x)  a = Neg(s)  b = Neg(a)  y = Relu(b)  z = Exp(a) }")
        assert "the result of the inner Neg is used elsewhere" in refusals(used, Unshared)[0]
        (shared,) = sites(used, DropNegOfNeg)
        assert ops(shared.apply()) == ["Abs", "Exp", "Neg", "Relu"]
        output = model("(float[3] x) => (y, a) { s = Abs(x)  a = Neg(s)  b = Neg(a)  y = Relu(b) }")
        assert "used elsewhere" in refusals(output, Unshared)[0]

    def test_a_value_that_a_subgraph_reads_keeps_its_name(self) -> None:
        source = sample_models.conditional()
        source.graph.node[0].op_type = "Identity"
        graph = load(source)
        assert sites(graph, DropIdentity) == []
        source = sample_models.conditional()
        source.graph.node[0].op_type = "Abs"
        (candidate,) = sites(load(source), NegateTwice)
        after = candidate.apply()
        assert [node.op for node in after.order()] == ["Abs", "Neg", "Neg", "If", "Add"]
        onnx.checker.check_model(to_proto(after), full_check=True)


class TestApplication:
    def test_the_graph_before_is_not_changed(self) -> None:
        graph = model(TestListing.GRAPH)
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


class CrossMerge(Rule):
    """Add(x, y), Mul(x, z) = the same through Concat and Split"""

    def source(self, op: Any, x: Any, y: Any, z: Any) -> Any:
        return op.Add(x, op.Abs(y)), op.Mul(x, op.Neg(z))

    def target(self, op: Any, m: Any, x: Any, y: Any, z: Any) -> Any:
        joined = op.Concat(op.Add(x, op.Abs(y)), op.Mul(x, op.Neg(z)), axis=0)
        return op.Split(joined, axis=0, num_outputs=2, _outputs=2)


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


@pytest.mark.parametrize("kind", ["site", "class"])
def test_many_changes_at_once_keep_the_order(kind: str) -> None:
    """More than are put into the listing one by one: each of 30 products that share an operand may join any other."""
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
