"""Sites: what a rule gives at a match, or why it is refused."""

from __future__ import annotations

import onnx
import pytest

from graph_rewrite import Rewriter, Rule, load
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rewriting.body_sites import BodySite
from tests.graph_rewrite import sample_models
from tests.graph_rewrite.rewriting.sample_rules import (
    DropIdentity,
    DropNegOfNeg,
    Exchange,
    FirstOfTwo,
    NegateTwice,
    Nothing,
    SumOnce,
    Wrong,
    refusals,
    sites,
)
from tests.graph_rewrite.rules.checking import model, ops


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

    def test_what_only_a_match_read_goes_with_it(self) -> None:
        text = """(float[3] x) => (y, z) <bool t = {{1}}> {{
            a = Abs(x)  b = Neg(a)  c = Exp(b)  w = Where(t, x, c)  y = Relu(w)  z = Sqrt({read})
        }}"""
        for read, gone in {"x": "Where Exp Neg Abs", "a": "Where Exp Neg", "b": "Where Exp", "c": "Where"}.items():
            (candidate,) = sites(model(text.format(read=read)), FirstOfTwo)
            assert [node.op for node in candidate.site.removed] == gone.split(), read

    def test_sites_that_remove_something_else_are_of_another_class(self) -> None:
        text = """(float[3] x) => (u, v, w) <bool t = {1}> {
            a = Abs(x)  b = Where(t, x, a)  u = Relu(b)
            c = Neg(x)  d = Where(t, x, c)  v = Exp(d)
            e = Abs(x)  f = Where(t, x, e)  w = Sqrt(f)
        }"""
        found = Rewriter([FirstOfTwo()], "class", deployment=False).candidates(model(text))
        assert sorted(candidate.count for candidate in found) == [1, 2]

    def test_a_value_that_a_subgraph_reads_keeps_its_name(self) -> None:
        source = sample_models.conditional()
        source.graph.node[0].op_type = "Identity"
        graph = load(source)
        assert sites(graph, DropIdentity) == []
        source = sample_models.conditional()
        source.graph.node[0].op_type = "Abs"
        (candidate,) = (one for one in sites(load(source), NegateTwice) if not isinstance(one.site, BodySite))
        after = candidate.apply()
        assert [node.op for node in after.order()] == ["Abs", "Neg", "Neg", "If", "Add"]
        onnx.checker.check_model(to_proto(after), full_check=True)
