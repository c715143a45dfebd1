"""Drawings of rules: layout, what is named once, and that the target is what an application of the rule builds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from graph_rewrite import Rewriter, Rule
from graph_rewrite.rewriting.patterns import Const, Maybe, Values
from graph_rewrite.rulebook.diagram import (
    choices,
    diagram_of_pattern,
    diagram_of_side,
    diagram_of_target,
    drawing,
    example,
    instance_note,
)
from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, draw, draw_both
from graph_rewrite.rulebook.drawing import DrawnOperand as Drawn
from graph_rewrite.rules import find_rule
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, term
from tests.graph_rewrite.rules.checking import model

A, B = Drawn("a"), Drawn("b")


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


class TestLayout:
    def test_operators_over_variables_stand_on_one_line(self) -> None:
        assert draw(Diagram((DrawnNode("Add", (A, B), ("axis=1",)),), (Drawn(step=0),))) == ["Add(a, b, axis=1)"]

    def test_others_are_trees(self) -> None:
        steps = (DrawnNode("Exp", (A,)), DrawnNode("Neg", (Drawn(step=0),)), DrawnNode("Add", (Drawn(step=1), B)))
        assert draw(Diagram(steps, (Drawn(step=2),))) == ["Add", "├─ Neg", "│  └─ Exp(a)", "└─ b"]

    def test_what_is_used_twice_is_drawn_once(self) -> None:
        steps = (DrawnNode("Exp", (Drawn("t"),)), DrawnNode("Mul", (Drawn(step=0), Drawn(step=0))))
        found = draw(Diagram(steps, (Drawn(step=1),)))
        assert found == ["Mul(u, u)", "u = Exp(t)"], "the name t is taken by a variable"

    def test_several_outputs_of_one_operator(self) -> None:
        steps = (DrawnNode("Split", (A,), outputs=2),)
        found = draw(Diagram(steps, (Drawn(step=0), Drawn(step=0, index=1))))
        assert found == ["out1 = t[0]", "out2 = t[1]", "t = Split(a)"]

    def test_an_output_that_another_one_reads_has_the_outputs_name(self) -> None:
        steps = (DrawnNode("Exp", (A,)), DrawnNode("Neg", (Drawn(step=0),)))
        assert draw(Diagram(steps, (Drawn(step=1), Drawn(step=0)))) == ["out1 = Neg(out2)", "out2 = Exp(a)"]

    def test_a_side_without_operators(self) -> None:
        assert draw(Diagram((), (A,))) == ["a"]

    def test_constants_are_short_expressions_in_brackets(self) -> None:
        inner, outer = DrawnNode("Neg", (B,), constant=True), DrawnNode("Exp", (Drawn(step=0),), constant=True)
        steps = (inner, outer, DrawnNode("Add", (A, Drawn(step=1))))
        assert draw(Diagram(steps, (Drawn(step=2),))) == ["Add", "├─ a", "└─ [Exp(Neg(b))]"]
        long = (DrawnNode("Neg", (Drawn("b" * 50),), constant=True), *steps[1:])
        assert draw(Diagram(long, (Drawn(step=2),)))[2:] == ["└─ [Exp]", f"   └─ [Neg({'b' * 50})]"]

    def test_sides_stand_beside_each_other_where_they_fit(self) -> None:
        left = Diagram((DrawnNode("Neg", (A,)), DrawnNode("Neg", (Drawn(step=0),))), (Drawn(step=1),))
        right = Diagram((), (A,))
        assert draw_both(left, right).splitlines() == ["Neg        =>  a", "└─ Neg(a)"]
        assert draw_both(left, right, width=10).splitlines() == ["Neg", "└─ Neg(a)", "=>", "a"]


class ScaledSum(Rule):
    """f(Conv(x, w, b) * c, rest) = f(Conv(x, w * c, b * c), rest)"""

    def source(self, op: Any, x: Any, w: Const, b: Maybe, c: Const, rest: Values) -> Any:
        scaled = op.Mul(op.Conv(x, w, b, _label="conv"), c)
        return op.any_of({"Sum", "Max"})(scaled, rest, _label="f")

    def target(self, op: Any, m: Any, x: Any, w: Any, b: Any, c: Any, rest: Any) -> Any:
        b = None if b is None else op.Mul(b, c)
        return getattr(op, m.node("f").op)(op.Conv(x, op.Mul(w, c), b, **m.attrs("conv")), *rest)


def scaled_sum(operator: str = "Sum") -> Any:
    text = """(float[1,2,4,4] x, float[1,1,4,4] y) => (z)
    { t = Conv<pads=[1,1,1,1]>(x, w, b) s = Mul(t, c) z = OP(s, y, y) }"""
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {"w": rng.standard_normal((1, 2, 3, 3)), "b": rng.standard_normal(1), "c": np.array(2.0)}
    graph = model(text.replace("OP", operator), **arrays)
    (candidate,) = Rewriter([ScaledSum()], "site", deployment=False).candidates(graph)
    return candidate.site.match.within(graph)


class TestSides:
    def test_patterns_show_options_choices_and_labels(self) -> None:
        pattern = ScaledSum().pattern
        assert draw(diagram_of_pattern(pattern)) == ["f", "├─ Mul", "│  ├─ Conv(x, w, b?)", "│  └─ c", "└─ *rest"]
        assert "│  ├─ conv: Conv(x, w, b?)" in draw(diagram_of_pattern(pattern, {"conv"}))
        assert choices(pattern) == [("f", ("Max", "Sum"))]

    def test_targets_show_what_constants_come_from(self) -> None:
        match = scaled_sum()
        target, labels = diagram_of_target(ScaledSum(), match)
        assert draw(target) == [
            "f", "├─ Conv **conv", "│  ├─ x", "│  ├─ [Mul(w, c)]", "│  └─ [Mul(b, c)]", "├─ rest1", "└─ rest1",
        ]  # fmt: skip
        assert labels == {"conv"}
        assert "rest float[1,1,4,4] and float[1,1,4,4], f Sum" in instance_note(match)

    def test_drawing_leaves_the_graph_as_it_is(self) -> None:
        match = scaled_sum("Max")
        before = match.graph.hash
        drawing(ScaledSum(), match)
        assert match.graph.hash == before

    def test_substitutions_are_drawn_in_their_own_operators(self) -> None:
        x, y, z = (Operand(INPUT, i) for i in range(3))
        source = Side((term("ewmul", x, z), term("ewmul", y, z), term("ewadd", Operand(0), Operand(1))), (Operand(2),))
        target = Side((term("ewadd", x, y), term("ewmul", Operand(0), z)), (Operand(1),))
        assert draw(diagram_of_side(source)) == ["ewadd", "├─ ewmul(x0, x2)", "└─ ewmul(x1, x2)"]
        assert draw(diagram_of_side(target)) == ["ewmul", "├─ ewadd(x0, x1)", "└─ x2"]
        conv = Side((term("conv", x, y, activation="none", padding="same", stride=(2, 1)),), (Operand(0),))
        assert draw(diagram_of_side(conv)) == ["conv(x0, x1, padding=same, stride=2x1)"]
        assert str(Substitution(source, target)) == "ewadd(ewmul(x0, x2), ewmul(x1, x2)) = ewmul(ewadd(x0, x1), x2)"

    def test_a_rule_without_an_instance_shows_its_source(self) -> None:
        assert lines(drawing(find_rule("DropIdentity"), None)) == ["Identity(x)", "=>", "(no instance known)"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("DropIdentity", "Identity(x)  =>  x"),
        ("SubOfNeg", "Sub        =>  Add(x, y)\n├─ x\n└─ Neg(y)"),
        ("SubAsAdd", "Sub(x, c)  =>  Add\n               ├─ x\n               └─ [Neg(c)]"),
    ],
)
def test_registered_rules_as_they_are_in_the_catalogue(name: str, expected: str) -> None:
    rule = find_rule(name)
    assert lines(drawing(rule, example(rule))) == expected.splitlines()
