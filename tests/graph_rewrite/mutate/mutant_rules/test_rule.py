"""Mutants as rules: they match the program that they were proved for, and nothing else."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.egraph import from_graph, saturate
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import Crop, Pad, Reorder
from graph_rewrite.mutate.moves import Move
from graph_rewrite.mutate.mutant_rules import MalformedMutantError, MutantRule, mutant_rule, read_mutant_rules
from graph_rewrite.mutate.mutant_rules.program_json import program_from_json, program_to_json
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.soundness.floating.comparison import compare
from tests.graph_rewrite.mutate.seeded import seeded_mutant


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def convolution(batch: int = 2, more: str = "", attributes: str = "pads=[0,0,0,0]") -> Graph:
    text = f"(float[{batch},4,6,6] x) => (z) {{ y = Conv<{attributes}>(x, w) {more} z = Relu(y) }}"
    return model(text, w=weights(6, 4, 1, 1))


SIDE_BY_SIDE = Move(0, "outer", 3, "outer", 2)
CONV = {"strides": (1, 1), "dilations": (1, 1), "pads": (0, 0, 0, 0)}
WIDE = program(
    2,
    [
        step("layout", 0, chain=(SIDE_BY_SIDE,)),
        step("conv", 2, 1, **CONV),
        step("layout", 3, chain=(SIDE_BY_SIDE.undone(),)),
    ],
)
"""Two images side by side: with a kernel of one position nothing is wrong at the seam."""


def the_rule(graph: Graph | None = None) -> MutantRule:
    graph = convolution() if graph is None else graph
    found = mutant_rule(graph, split(graph).subprograms[0], WIDE)
    assert isinstance(found, MutantRule)
    return found


def test_a_mutant_is_a_candidate_that_computes_the_same() -> None:
    graph = convolution()
    (candidate,) = Rewriter([the_rule()], deployment=False).candidates(graph)
    after = candidate.apply()
    sizes = [after.types[node.inputs[0]].shape for node in after.order() if node.op == "Conv"]  # type: ignore
    assert sizes == [(1, 4, 6, 12)]
    assert compare(graph, after, seed=0).worst_error < 1e-6


def test_a_class_of_sites_is_one_candidate() -> None:
    text = "(float[2,4,6,6] x, float[2,4,6,6] y) => (p, q) { a = Conv(x, w) b = Conv(y, v) p = Relu(a) q = Relu(b) }"
    graph = model(text, w=weights(6, 4, 1, 1), v=2 * weights(6, 4, 1, 1))
    candidates = Rewriter([the_rule()], deployment=False).candidates(graph)
    assert [candidate.count for candidate in candidates] == [2, 1, 1]


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (convolution(batch=4), "shape"),
        (convolution(attributes="pads=[1,1,1,1]"), "other attributes"),
        (convolution(attributes="strides=[2,2]"), "other attributes"),
        (model("(float16[2,4,6,6] x) => (z) { y = Conv(x, w) z = Relu(y) }", w=weights(6, 4, 1, 1).astype(np.float16)),
         "another type"),
    ],
)  # fmt: skip
def test_another_program_is_refused_with_a_reason(graph: Graph, reason: str) -> None:
    rewriter = Rewriter([the_rule()], deployment=False)
    assert not rewriter.candidates(graph)
    assert [reason in refusal.reason for refusal in rewriter.explain(graph)] == [True]


def test_weights_that_are_fed_are_not_matched() -> None:
    graph = model("(float[2,4,6,6] x, float[6,4,1,1] w) => (z) { y = Conv(x, w) z = Relu(y) }")
    assert not Rewriter([the_rule()], deployment=False).candidates(graph)


def test_an_e_graph_takes_a_mutant() -> None:
    graph = convolution()
    rule = the_rule()
    egraph = from_graph(graph)
    saturate(egraph, [rule])
    sizes = {type.shape for cls in egraph.classes() if (type := egraph.type_of(cls)) is not None}
    assert (1, 6, 6, 12) in sizes


def test_operators_with_parameters_and_several_outputs_match() -> None:
    """A Pad with constant pads, a Concat of three, and two results that are read outside."""
    text = """(float[2,4,6,6] x) => (p, q) {
        a = Conv(x, w) b = Pad(a, pads) c = Concat<axis=1>(b, b, b) p = Relu(b) q = Relu(c) }"""
    graph = model(text, w=weights(6, 4, 1, 1), pads=[0, 0, 1, 0, 0, 0, 0, 2])
    whole = split(graph).subprograms[-1]
    assert [len(whole.nodes), len(whole.outputs)] == [3, 2]
    rule = mutant_rule(graph, whole, whole.program)
    assert isinstance(rule, MutantRule)
    assert [len(rule.pattern.nodes), len(rule.pattern.roots)] == [3, 2]
    rewriter = Rewriter([rule], deployment=False)
    assert [refusal.reason for refusal in rewriter.explain(graph)] in ([], ["the target is what is there already"])
    other = model(text, w=weights(6, 4, 1, 1), pads=[0, 0, 0, 1, 0, 0, 0, 2])
    assert ["other attributes" in refusal.reason for refusal in rewriter.explain(other)] == [True]


def test_operands_of_a_sum_match_in_either_order() -> None:
    text = "(float[2,4,6,6] x, float[2,6,6,6] y) => (z) {{ a = Conv(x, w) b = Add({}) z = Relu(b) }}"
    first, second = (model(text.format(order), w=weights(6, 4, 1, 1)) for order in ("a, y", "y, a"))
    sub = split(first).subprograms[-1]
    rule = mutant_rule(first, sub, sub.program)
    assert isinstance(rule, MutantRule)
    reasons = [Rewriter([rule], deployment=False).explain(graph) for graph in (first, second)]
    assert not [refusal for found in reasons for refusal in found if "attributes" in refusal.reason]


def test_what_is_not_equal_is_no_rule() -> None:
    graph = model("(float[2,4,6,6] x) => (z) { y = Conv<pads=[1,1,1,1]>(x, w) z = Relu(y) }", w=weights(6, 4, 3, 3))
    conv = {**CONV, "pads": (1, 1, 1, 1)}
    wide = replace(WIDE, steps=(WIDE.steps[0], step("conv", 2, 1, **conv), WIDE.steps[2]))
    found = mutant_rule(graph, split(graph).subprograms[0], wide)
    assert isinstance(found, Refusal)
    assert "not equal everywhere" in found.reason


def test_a_rule_survives_json() -> None:
    rule = the_rule()
    (read,) = read_mutant_rules(json.loads(json.dumps([rule.embedded])))
    assert (read.name, read.digest, read.mutant, read.shapes) == (rule.name, rule.digest, rule.mutant, rule.shapes)
    assert [str(c.key) for c in Rewriter([read], deployment=False).candidates(convolution())] == [
        str(c.key) for c in Rewriter([rule], deployment=False).candidates(convolution())
    ]


def test_programs_of_all_operators_survive_json() -> None:
    seeded = (seeded_mutant(seed) for seed in range(60))
    found = [made[2] for made in seeded if made is not None]
    others = [
        step("constant", 0, numerators=(1, -2), denominator=3, shape=(2,)), step("averaging", 0, kernel=(3, 3)),
        step("diagonal", 0, count=2, source=0, target=1), step("fit", 0, 1), step("concat", 0, 1, axis=1),
        step("pool", 0, kernel=(2, 2), pads=(0, 0, 0, 0), strides=(1, 1), counted=1),
        step("layout", 0, chain=(Reorder((1, 0)), Pad(0, 1, 2), Crop(1, 0, 1))),
    ]  # fmt: skip
    assert len(found) > 20
    for made in [*found, program(2, others)]:
        assert program_from_json(json.loads(json.dumps(program_to_json(made)))) == made


def wrong(change: Any) -> dict[str, Any]:
    data = json.loads(json.dumps(the_rule().embedded))
    change(data)
    return data


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"format": 2},
        wrong(lambda data: data.pop("shapes")),
        wrong(lambda data: data["shapes"].append([1])),
        wrong(lambda data: data.update(dtype=16)),
        wrong(lambda data: data.update(name="MutantConv00000000")),
        wrong(lambda data: data["mutant"]["steps"].append(["system", [0], {}])),
        wrong(lambda data: data["mutant"]["steps"][0][2]["chain"][0].__setitem__(0, "Popen")),
        wrong(lambda data: data["mutant"].update(outputs=[9])),
        wrong(lambda data: data["operators"]["nodes"].append(["Relu", ["x7"]])),
        wrong(lambda data: data["operators"].update(outputs=[3])),
    ],
)
def test_data_of_another_form_are_refused(data: dict[str, Any]) -> None:
    with pytest.raises(MalformedMutantError):
        read_mutant_rules([data])


def test_a_program_that_is_too_large_is_not_proved_again() -> None:
    rule = the_rule()
    big = MutantRule(rule.operators, rule.original, rule.mutant, ((2, 4, 60_000, 60_000), (6, 4, 1, 1)), 1,
                     rule.constants, rule.certificate)  # fmt: skip
    with pytest.raises(MalformedMutantError, match="too large"):
        read_mutant_rules([big.embedded])


def test_inputs_of_two_types_are_no_rule() -> None:
    graph = convolution()
    sub = split(graph).subprograms[0]
    graph.types[sub.inputs[0]] = TensorType(onnx.TensorProto.DOUBLE, sub.shapes[0])
    assert isinstance(mutant_rule(graph, sub, WIDE), Refusal)


def test_outputs_of_another_shape_are_refused() -> None:
    rule = the_rule()
    short = replace(rule.mutant, outputs=(3,))
    other = MutantRule(rule.operators, rule.original, short, rule.shapes, 1, rule.constants, rule.certificate)
    with pytest.raises(MalformedMutantError, match="different shapes"):
        read_mutant_rules([other.embedded])
