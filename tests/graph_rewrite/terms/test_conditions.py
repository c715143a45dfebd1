"""Conditions derived for TASO's rules, and counterexamples for false ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from graph_rewrite.rules.substitutions.rule_files import imported_rules
from graph_rewrite.terms.conditions import CONDITIONS, condition_holds, derive, differs
from graph_rewrite.terms.semantics import TermType, evaluate, output_types
from graph_rewrite.terms.small_shapes import is_typed, small_shapes
from graph_rewrite.terms.tensat_file import parse_tensat

GROUPED = {98: "one group", 99: "equal filters per group", 127: "one group"}


def rule(line: str):
    return parse_tensat(line)[0]


@pytest.mark.parametrize("number", [0, 9, 32, 35, 53, 56, 70, 84, 103, *GROUPED])
def test_shipped_conditions_are_those_that_are_derived(number):
    shipped = imported_rules()[number].substitution
    derivation = derive(shipped, max_dim=2 if GROUPED.get(number) == "one group" else 3)
    assert derivation.holds
    assert derivation.conditions == shipped.conditions
    assert shipped.conditions == ((GROUPED[number],) if number in GROUPED else ())
    assert 0 < derivation.instances <= derivation.shapes


def test_nothing_weaker_than_the_derived_condition_will_do():
    shipped = imported_rules()[99].substitution
    outside = [
        shapes
        for shapes in small_shapes(shipped, 3)
        if not condition_holds(shipped, {i: TermType(s) for i, s in shapes.items()}, shipped.conditions)
    ]
    assert outside
    assert any(differs(shipped, shapes, seed=1) for shapes in outside)


@pytest.mark.parametrize(
    "line",
    [
        "(matmul ?a ?b)=>(matmul ?b ?a)",
        "(relu (ewadd ?a ?b))=>(ewadd (relu ?a) (relu ?b))",
        "(ewadd ?a (ewmul ?b ?c))=>(ewmul (ewadd ?a ?b) ?c)",
        "(concat 0 2 ?a ?b)=>(concat 0 2 ?b ?a)",
        "(conv2d 1 1 0 0 ?x (ewadd ?v ?w))=>(ewadd (conv2d 1 1 0 0 ?x ?v) ?x)",
        "(conv2d 1 1 0 0 (relu ?x) ?w)=>(relu (conv2d 1 1 0 0 ?x ?w))",
    ],
)
def test_false_rules_are_refuted_by_what_evaluation_shows(line):
    false = rule(line)
    derivation = derive(false, max_dim=3)
    assert not derivation.holds
    found = derivation.counterexample
    assert found is not None
    assert found.before != found.after
    assert is_typed(false, dict(enumerate(found.shapes)))
    assert "output 0" in derivation.reason


def test_a_rule_without_shapes_is_refused():
    derivation = derive(rule("(matmul 0 ?a (concat 1 4 ?b ?c))=>(ewadd ?a (concat 1 2 ?b ?c))"), max_dim=2)
    assert not derivation.holds
    assert derivation.reason == "no small shapes give both sides types"


def test_kernels_of_an_enlarged_filter_need_odd_sizes_or_none():
    enlarged = rule("(conv2d 1 1 0 0 ?x ?w)=>(conv2d 1 1 0 0 ?x (enlarge 3 3 ?w))")
    derivation = derive(enlarged, max_dim=3)
    assert derivation.holds
    for shapes in small_shapes(enlarged, 3):
        types = {i: TermType(shape) for i, shape in shapes.items()}
        if condition_holds(enlarged, types, derivation.conditions):
            assert differs(enlarged, shapes, seed=3) is None


def test_small_shapes_are_all_that_types_allow():
    product = rule("(matmul (ewadd ?a ?b) ?c)=>(ewadd (matmul ?a ?c) (matmul ?b ?c))")
    found = {tuple(shapes[i] for i in range(3)) for shapes in small_shapes(product, 2)}
    matrices = list(itertools.product((1, 2), repeat=2))
    wanted = set()
    for a, b, c in itertools.product(matrices, repeat=3):
        types = {0: TermType(a), 1: TermType(b), 2: TermType(c)}
        if output_types(product.source, types) and output_types(product.target, types):
            wanted.add((a, b, c))
    assert {shapes for shapes in found if len(shapes[0]) == 2} == wanted
    assert any(len(shapes[0]) == 3 for shapes in found)


def test_a_convolution_of_a_tensor_with_itself_has_shapes():
    shipped = imported_rules()[34].substitution
    shapes = list(small_shapes(shipped, 3))
    assert len(shapes) > 10
    assert all(len(set(s.values())) == 1 for s in shapes)
    arrays = {i: np.ones(s, dtype=np.int64) for i, s in shapes[-1].items()}
    (before,), (after,) = evaluate(shipped.source, arrays), evaluate(shipped.target, arrays)
    np.testing.assert_array_equal(before, after)


def test_unknown_conditions_are_refused():
    shipped = imported_rules()[99].substitution
    with pytest.raises(ValueError, match="there is no condition 'blue'"):
        condition_holds(shipped, {}, ("blue",))
    assert all(name == condition.name for name, condition in CONDITIONS.items())
