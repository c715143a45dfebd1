"""Substitutions as rules: where they apply, what they refuse, that they keep the outputs."""

from __future__ import annotations

import dataclasses
import itertools
import json

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.rules import all_rules, rule_names, rule_set
from graph_rewrite.rules.substitutions.rule_files import imported_rules, read_rules, write_rules
from graph_rewrite.rules.substitutions.substitution import SubstitutionRule
from graph_rewrite.soundness.cases import cases_of
from graph_rewrite.terms.json_form import from_json, to_json
from graph_rewrite.terms.rule_file import RuleFileError
from graph_rewrite.terms.substitution import INPUT, Operand, Side, Substitution, term
from graph_rewrite.terms.tensat_file import parse_tensat
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

X = Operand(INPUT, 0)
GROUPED, ONE_GROUP = 99, 125


def rule(line: str, *conditions: str) -> SubstitutionRule:
    (substitution,) = parse_tensat(line)
    whole = Substitution(substitution.source, substitution.target, conditions)
    return SubstitutionRule(whole, "Mine", "mine", "generated")


RELU_CONV = rule("(relu (conv2d 1 1 0 0 ?x ?w))=>(conv2d 1 1 0 0 (relu ?x) ?w)")
IMAGE = "float[1,4,6,6] x"


@pytest.mark.parametrize("imported", imported_rules()[::11], ids=lambda imported: imported.name)
def test_imported_rules_apply_to_their_cases_and_keep_the_outputs(imported):
    graphs = list(itertools.islice(cases_of(imported), 2, 4))
    assert graphs
    for graph in graphs:
        sites = len(list(Rewriter([imported], "site", deployment=False).candidates(graph)))
        assert sites > 0
        check_rule(imported, graph, sites, rtol=1e-8, rtol_float32=1e-4)


def test_a_convolution_takes_same_padding_in_every_spelling():
    w = weights(4, 4, 3, 3)
    distribute = rule("(conv2d 1 1 0 0 (ewadd ?x ?y) ?w)=>(ewadd (conv2d 1 1 0 0 ?x ?w) (conv2d 1 1 0 0 ?y ?w))")
    for attributes in ("pads=[1,1,1,1]", 'auto_pad="SAME_UPPER"', 'auto_pad="SAME_LOWER"'):
        text = f"({IMAGE}, float[1,4,6,6] y) => (z) {{ s = Add(x, y) z = Conv<{attributes}>(s, w) }}"
        check_rule(distribute, model(text, w=w), 2, becomes=["Add", "Conv", "Conv"])
    for attributes, reason in (
        ("pads=[0,0,0,0]", "padding is not 'same'"),
        ("pads=[1,1,1,1], strides=[2,2]", "strides, dilations or groups"),
        ("pads=[2,2,2,2], dilations=[2,2]", "strides, dilations or groups"),
    ):
        text = f"({IMAGE}, float[1,4,6,6] y) => (z) {{ s = Add(x, y) z = Conv<{attributes}>(s, w) }}"
        refuses(distribute, model(text, w=w), reason)


def test_a_bias_is_not_matched():
    text = f"({IMAGE}) => (z) {{ s = Conv<pads=[1,1,1,1]>(x, w, b) z = Relu(s) }}"
    graph = model(text, w=weights(4, 4, 3, 3), b=weights(4))
    assert not Rewriter([RELU_CONV], deployment=False).candidates(graph)


def test_broadcasting_is_refused():
    commute = rule("(relu (ewadd ?a ?b))=>(relu (ewadd ?b ?a))")
    refuses(commute, model("(float[2,3] x, float[3] y) => (z) { s = Add(x, y) z = Relu(s) }"), "does not accept")


def test_a_scalar_is_a_constant_of_one_element():
    scale = rule("(matmul 0 (smul ?x ?s) ?y)=>(smul (matmul 0 ?x ?y) ?s)")
    text = "(float[2,3] x, float[3,4] y) => (z) { s = Mul(x, c) z = MatMul(s, y) }"
    check_rule(scale, model(text, c=np.float32(2.5)), becomes=["MatMul", "Mul"])
    assert not Rewriter([scale], deployment=False).candidates(model(text, c=weights(3)))


def test_groups_must_line_up():
    merge = imported_rules()[GROUPED]
    text = """(float[1,4,5,5] x, float[1,2,5,5] y) => (z) {
        a = Conv<pads=[1,1,1,1], group=2>(x, v) b = Conv<pads=[1,1,1,1]>(y, w) z = Concat<axis=1>(a, b) }"""
    (after,) = check_rule(merge, model(text, v=weights(4, 2, 3, 3), w=weights(2, 2, 3, 3, seed=1)))
    (conv,) = (node for node in after.nodes.values() if node.op == "Conv")
    assert conv.attrs["group"] == 3
    refuses(
        merge, model(text, v=weights(8, 2, 3, 3), w=weights(1, 2, 3, 3)), "the same number of filters in each group"
    )
    parallel = """(float[1,4,5,5] x) => (z) {
        a = Conv<pads=[1,1,1,1], group=2>(x, v) b = Conv<pads=[1,1,1,1], group=2>(x, w) z = Concat<axis=1>(a, b) }"""
    refuses(
        imported_rules()[ONE_GROUP],
        model(parallel, v=weights(4, 2, 3, 3), w=weights(4, 2, 3, 3, seed=1)),
        "no convolution has groups",
    )


def test_constants_are_recognised_by_their_contents():
    identity = rule("(relu (matmul 0 ?x Imatmul))=>(relu ?x)")
    text = "(float[2,3] x) => (z) { s = MatMul(x, c) z = Relu(s) }"
    check_rule(identity, model(text, c=np.eye(3, dtype=np.float32)), becomes=["Relu"])
    refuses(identity, model(text, c=weights(3, 3)), "not that of imatmul")
    average = rule("(conv2d 1 1 0 0 ?x (Cpool 3 3))=>(poolavg ?x 3 3 1 1 0 0)")
    depthwise = f"({IMAGE}) => (z) {{ z = Conv<pads=[1,1,1,1], group=4>(x, c) }}"
    check_rule(
        average, model(depthwise, c=np.full((4, 1, 3, 3), 1 / 9, np.float32)), becomes=["AveragePool"], rtol=1e-6
    )
    refuses(average, model(depthwise, c=weights(4, 1, 3, 3)), "not that of cpool")


def test_averages_must_count_the_padding():
    average = rule("(poolavg ?x 3 3 1 1 0 0)=>(conv2d 1 1 0 0 ?x (Cpool 3 3))")
    text = f"({IMAGE}) => (z) {{{{ z = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad={{}}>(x) }}}}"
    check_rule(average, model(text.format(1)), becomes=["Conv"], rtol=1e-6)
    refuses(average, model(text.format(0)), "leaves the padding out")


def test_a_split_shows_where_its_input_has_a_border():
    inner = Side((term("split", X, axis=1), term("relu", Operand(0, 0)), term("relu", Operand(0, 1)),
                  term("concat", Operand(1), Operand(2), axis=1, rank=2)), (Operand(3),))  # fmt: skip
    outer = Side((term("relu", X),), (Operand(0),))
    text = "(float[2,5] x) => (z) { a, b = Split<axis=-1>(x, s) c = Relu(a) d = Relu(b) z = Concat<axis=1>(c, d) }"
    join = SubstitutionRule(Substitution(inner, outer), "Join", "mine", "generated")
    check_rule(join, model(text, s=[2, 3]), becomes=["Relu"])
    refuses(
        join, model(text.replace("axis=-1", "axis=0").replace("Concat<axis=1>", "Concat<axis=0>"), s=[1, 1]), "axis"
    )


def test_outputs_that_share_nothing_are_merged_where_they_meet():
    merge = imported_rules()[70]
    meeting = "(float[2,3] x, float[2,4] y) => (z) { a = Relu(x) b = Relu(y) z = Concat<axis=1>(a, b) }"
    check_rule(merge, model(meeting), becomes=["Concat", "Relu", "Split", "Concat"])
    siblings = "(float[2,7] x) => (a, b) { p, q = Split<axis=1>(x, s) a = Relu(p) b = Relu(q) }"
    check_rule(merge, model(siblings, s=[3, 4]), becomes=["Split", "Concat", "Relu", "Split"])
    apart = "(float[2,3] x, float[2,4] y) => (a, b) { a = Relu(x) b = Relu(y) }"
    assert not Rewriter([merge], deployment=False).candidates(model(apart))


def test_a_scalar_that_all_share_does_not_bring_outputs_together():
    x0, x1, factor = (Operand(INPUT, number) for number in range(3))
    source = Side((term("smul", x0, factor), term("smul", x1, factor)), (Operand(0), Operand(1)))
    target = Side((term("concat", x0, x1, axis=0, rank=2), term("smul", Operand(0), factor),
                   term("split", Operand(1), axis=0)), (Operand(2), Operand(2, 1)))  # fmt: skip
    merge = SubstitutionRule(Substitution(source, target), "Merge", "mine", "generated")
    scaled = "(float[2,3] x, float[4,3] y) => (OUTPUTS) { a = Mul(x, c) b = Mul(y, c) z = Concat<axis=0>(a, b) }"
    half = np.float32(0.5)
    check_rule(merge, model(scaled.replace("OUTPUTS", "z"), c=half), becomes=["Concat", "Mul", "Split", "Concat"])
    apart = model(scaled.replace("OUTPUTS", "a, b").replace(" z = Concat<axis=0>(a, b)", ""), c=half)
    assert not Rewriter([merge], deployment=False).candidates(apart)


def test_no_huge_constant_comes_in():
    convolve = rule("(relu (relu ?x))=>(conv2d 1 1 0 2 ?x (Iconv 3 3))")
    text = "(float[1,{0},2,2] x) => (z) {{ a = Relu(x) z = Relu(a) }}"
    check_rule(convolve, model(text.format(84)), becomes=["Conv", "Relu"], rtol=1e-6)
    refuses(convolve, model(text.format(86)), "66,564 elements")


def test_neighbours_that_a_rewrite_brings_are_found_incrementally():
    rules = [imported_rules()[70], *(r for r in all_rules() if r.name == "DropIdentity")]
    text = "(float[2,3] x, float[2,4] y) => (z) { a = Relu(x) i = Identity(a) b = Relu(y) z = Concat<axis=1>(i, b) }"
    rewriter = Rewriter(rules, "site", deployment=False)
    (drop,) = rewriter.candidates(model(text))
    after = drop.apply()
    found = [candidate.key for candidate in rewriter.candidates(after)]
    fresh = dataclasses.replace(after, memo=GraphMemo(), edit=None)
    assert found == [candidate.key for candidate in Rewriter(rules, "site", deployment=False).candidates(fresh)]
    assert len(found) == 1


def test_a_rule_is_its_data():
    first = imported_rules()[GROUPED]
    again = from_json(json.loads(json.dumps(to_json(first.substitution))))
    assert again == first.substitution
    assert SubstitutionRule(again, first.name, "taso", "taso").digest == first.digest
    bare = Substitution(again.source, again.target)
    assert SubstitutionRule(bare, first.name, "taso", "taso").digest != first.digest
    assert "the same number of filters in each group" in first.equation
    assert first.origin == "taso"
    assert all_rules()[0].origin == "hand"


@pytest.mark.parametrize(
    ("source", "target", "conditions", "reason"),
    [
        (Side((), (X,)), Side((), (X,)), (), "bare input"),
        (Side((term("relu", X),), (Operand(0), Operand(0))), Side((), (X, X)), (), "one value twice"),
        (Side((term("relu", X),), (Operand(0),)), Side((), (Operand(INPUT, 1),)), (), "the target reads x1"),
        (Side((term("relu", X),), (Operand(0),)), Side((), (X,)), ("blue",), "no condition 'blue'"),
    ],
)
def test_what_is_no_rule_is_refused(source, target, conditions, reason):
    with pytest.raises(ValueError, match=reason):
        SubstitutionRule(Substitution(source, target, conditions), "Mine", "mine", "generated")


def test_files_of_rules(tmp_path):
    rules = {r.name: r.substitution for r in imported_rules()[:3]}
    write_rules(tmp_path / "rules.json", rules, origin="taso", family="taso", made_by="a test")
    assert [(r.name, r.digest) for r in read_rules(tmp_path / "rules.json")] == [
        (r.name, r.digest) for r in imported_rules()[:3]
    ]
    for text, reason in (("{", "not a file of rules"), ('{"format": 7}', "of format 7"), ("[]", "not a file of rules")):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(RuleFileError, match=reason):
            read_rules(tmp_path / "bad.json")


def test_rule_sets():
    assert rule_set("default") == all_rules()
    assert rule_set("taso") == imported_rules()
    everything = rule_set("all")
    assert everything[: len(all_rules())] == all_rules()
    assert rule_names() == tuple(rule.name for rule in everything)
    assert rule_set("default, taso") == (*all_rules(), *imported_rules())
    assert len({r.name for r in everything}) == len(everything)
    with pytest.raises(ValueError, match="no rule set 'best'"):
        rule_set("best")
