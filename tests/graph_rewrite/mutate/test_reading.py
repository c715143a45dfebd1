"""Operators that read as steps, and what filters and limits leave out before a proof."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.layouts import Crop
from graph_rewrite.mutate.equivalence import RandomTrials, passes_filter
from graph_rewrite.mutate.mutant_rules import MutantRule, mutant_rule
from graph_rewrite.mutate.program import program, step
from graph_rewrite.mutate.search import Limits, mutants_of
from graph_rewrite.mutate.subprograms import split
from graph_rewrite.onnx_files.assembly import model
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


def test_the_filter_leaves_out_what_too_few_boxes_hold() -> None:
    halves = [step("layout", 0, chain=(Crop(2, 0, 8),)), step("layout", 0, chain=(Crop(2, 8, 0),))]
    both = program(1, [*halves, step("add", 1, 2)])
    trials = RandomTrials(both, ((1, 1, 16),), seed=5, trials=1)
    assert passes_filter(trials, both, 1.0)
    assert not passes_filter(trials, program(1, [halves[0], step("add", 1, 1)]), 0.1)


def test_what_has_no_small_instance_is_refused_with_a_reason() -> None:
    text = "(float[1,128,96] x) => (z) { q = MatMul(x, u) y = Reshape(q, s) z = Relu(y) }"
    graph = model(text, u=weights(96, 768), s=np.array([1, 128, 12, 64]))
    result = mutants_of(graph, Limits(seconds=5.0, depth=1, keep=0.9))
    assert ["no smaller instance" in str(reason) for _, reason in result.subprograms] == [True]
    assert [len(sub.nodes) for sub, _ in result.searched] == [1]
