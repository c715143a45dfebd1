"""Operators that read as steps, and what filters and limits leave out before a proof."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.ir.node import Node
from graph_rewrite.layouts import Crop
from graph_rewrite.mutate.equivalence import RandomTrials, passes_filter
from graph_rewrite.mutate.mutant_rules import MutantRule, mutant_rule, read_mutant_rules
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.reading import read
from graph_rewrite.mutate.search import Limits, mutants_of
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.soundness.floating.comparison import compare


def weights(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


GIVEN = {
    "w": weights(6, 4), "b": weights(6), "v": weights(4, 6), "u": weights(12, 4), "a": np.array([2, 3]),
    "s": np.array([8]), "c": np.array([2]), "d": np.array([1]),
}  # fmt: skip


def given(text: str) -> dict[str, np.ndarray]:
    return {name: value for name, value in GIVEN.items() if re.search(rf", {name}[,)]", text)}


@pytest.mark.parametrize(
    ("text", "ops"),
    [
        ("(float[2,4] x) => (z) { y = Gemm<transB=1>(x, w, b) z = Relu(y) }", ["layout", "matmul", "add"]),
        ("(float[2,4] x) => (z) { y = Gemm(x, v) z = Relu(y) }", ["matmul"]),
        ("(float[2,3,4,5] x) => (z) { y = GlobalAveragePool(x) z = Relu(y) }", ["pool"]),
        ("(float[2,3,4,5] x) => (z) { y = ReduceMean(x, a) z = Relu(y) }", ["pool"]),
        ("(float[2,3,4,4] x) => (z) { y = ReduceSum(x, a) z = Relu(y) }", ["constant", "layout", "matmul", "layout"]),
        ("(float[2,4] x) => (z) { y = ReduceSum<keepdims=0>(x, d) z = Relu(y) }", ["constant", "matmul", "layout"]),
        ("(float[2,12,1,1] x) => (z) { y = Flatten(x) q = MatMul(y, u) z = Relu(q) }", ["layout", "matmul"]),
        ("(float[2,12] x) => (z) { q = MatMul(x, u) y = Reshape(q, s) z = Relu(y) }", ["matmul", "layout"]),
        ("(float[2,12,1] x) => (z) { y = Squeeze(x, c) q = MatMul(y, u) z = Relu(q) }", ["layout", "matmul"]),
        ("(float[2,12] x) => (z) { q = MatMul(x, u) y = Unsqueeze(q, c) z = Relu(y) }", ["matmul", "layout"]),
    ],
)  # fmt: skip
def test_further_operators_read_as_steps_that_compute_the_same(text: str, ops: list[str]) -> None:
    graph = model(text, **given(text))
    whole = split(graph).subprograms[-1]
    assert [each.op for each in whole.program.steps] == ops
    rule = mutant_rule(graph, whole, whole.program)
    assert isinstance(rule, MutantRule)
    rewriter = Rewriter([rule], deployment=False)
    found = rewriter.candidates(graph)
    if not found:  # the steps are built as the operators that were read
        assert [refusal.reason for refusal in rewriter.explain(graph)] == ["the target is what is there already"]
    for candidate in found:
        result = compare(graph, candidate.apply(), seed=0, lossy=rule.lossy)
        assert result.ok
        assert result.worst_error < 1e-5


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("(float[2,4] x) => (z) { z = Gemm<alpha=2.0>(x, v) }", "Gemm with factors"),
        ("(float[4,2] x) => (z) { z = Gemm<transA=1>(x, v) }", "transposed first operand"),
        ("(float[2,4,4,4] x) => (z) { z = ReduceMean<keepdims=0>(x, a) }", "without keeping them"),
        ("(float[2,4,4] x) => (z) { z = ReduceMean(x, d) }", "other axes than those of an image"),
        ("(float[8] x) => (z) { z = Reshape(x, s) }", "changes nothing"),
    ],
)
def test_what_is_no_step_is_refused_with_a_reason(text: str, reason: str) -> None:
    found = split(model(text, **given(text)))
    assert not found.subprograms
    assert [reason in str(refusal) for refusal in found.refused.values()] == [True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "(float[4,2] x, bool[4] k) => (float[n,2] z) { c = Compress<axis=0>(x, k) z = Add(c, c) }",
            "Add has a dynamic shape",
        ),
        ("(float[4,2] x) => (float[4,2] z) { y = custom.Unknown(x) z = Relu(y) }", "Unknown is not linear"),
        ("(int32[4,2] x, int32[2,4] y) => (z) { z = MatMul(x, y) }", "only float and double are proved"),
    ],
)
def test_bad_input_is_refused_with_a_reason_and_nothing_is_searched(text: str, reason: str) -> None:
    result = mutants_of(model(text), Limits(seconds=5.0))
    assert not result.searched
    assert not result.found
    assert any(reason in str(refusal) for refusal in result.nodes.values())


def test_an_opaque_node_is_refused() -> None:
    """Whatever its operator: the graph does not know what it computes."""
    graph = model("(float[4,2] x) => (z) { y = Add(x, x) z = Relu(y) }")
    add = next(node for node in graph.nodes.values() if node.op == "Add")
    found = read(graph, Node(add.id, add.op, add.inputs, add.outputs, add.attrs, opaque=True))
    assert isinstance(found, Refusal)
    assert found.reason == "Add is opaque"


def test_the_filter_leaves_out_what_too_few_boxes_hold() -> None:
    halves = [step("layout", 0, chain=(Crop(2, 0, 8),)), step("layout", 0, chain=(Crop(2, 8, 0),))]
    both = program(1, [*halves, step("add", 1, 2)])
    trials = RandomTrials(both, ((1, 1, 16),), seed=5, trials=1)
    assert passes_filter(trials, both, 1.0)
    assert not passes_filter(trials, program(1, [halves[0], step("add", 1, 1)]), 0.1)


def test_what_has_no_small_instance_is_refused_with_a_reason() -> None:
    """Parts of 290 and 477 channels are no whole numbers of few."""
    text = "(float[1,128,96] x) => (p, q) { y = MatMul(x, u) p, q = Split<axis=2>(y, s) }"
    graph = model(text, u=weights(96, 767), s=np.array([290, 477]))
    result = mutants_of(graph, Limits(seconds=5.0, depth=1, keep=0.9))
    assert ["no smaller instance" in str(reason) for _, reason in result.subprograms] == [True]
    assert [len(sub.nodes) for sub, _ in result.searched] == [1]


def test_a_split_reads_as_crops_and_is_matched_with_all_its_parts() -> None:
    text = "(float[2,4] x) => (p, q, r) { y = MatMul(x, v) a, b, c = Split<axis=1>(y, t) p = Relu(a) q = Relu(b) %s }"
    given = {"v": GIVEN["v"], "t": np.array([1, 3, 2])}
    graph = model(text % "r = Relu(c)", **given)
    whole = split(graph).subprograms[-1]
    assert [each.op for each in whole.program.steps] == ["matmul", "layout", "layout", "layout"]
    assert [each.chain for each in whole.program.steps[1:]] == [(Crop(1, 0, 5),), (Crop(1, 1, 2),), (Crop(1, 4, 0),)]
    assert len(whole.outputs) == 3
    rule = mutant_rule(graph, whole, whole.program)
    assert isinstance(rule, MutantRule)
    (read,) = read_mutant_rules(json.loads(json.dumps([rule.embedded])))
    assert (read.operators, read.digest) == (rule.operators, rule.digest)
    # The crops are built as Slices.
    (candidate,) = Rewriter([read], deployment=False).candidates(graph)
    assert compare(graph, candidate.apply(), seed=0).worst_error < 1e-5
    other = model(text % "r = Relu(c)", **{**given, "t": np.array([2, 2, 2])})
    assert [refusal.reason for refusal in Rewriter([read], deployment=False).explain(other)] == [
        "the operators have other attributes than those proved"
    ]


def test_parts_of_a_split_that_are_used_inside_are_no_outputs() -> None:
    text = (
        "(float[2,12] x) => (z) { a, b = Split<axis=1, num_outputs=2>(x) c = Add(a, b) q = MatMul(c, v) z = Relu(q) }"
    )
    graph = model(text, v=weights(6, 3))
    whole = split(graph).subprograms[-1]
    assert [len(whole.nodes), len(whole.outputs)] == [3, 1]
    assert [each.op for each in whole.program.steps] == ["layout", "layout", "add", "matmul"]
    rule = mutant_rule(graph, whole, whole.program)
    assert isinstance(rule, MutantRule)
    (candidate,) = Rewriter([rule], deployment=False).candidates(graph)
    assert compare(graph, candidate.apply(), seed=0).worst_error < 1e-5
