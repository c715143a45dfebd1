"""Parallel MatMuls merge and separate; a merge and its inverse give back the graph."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.matmul import parallel as P
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

QKV = """(float[2,3,4] x) => (q, k, v) {
    a = MatMul(x, w1)  q = Add(a, b1)
    b = MatMul(x, w2)  k = Add(b2, b)
    c = MatMul(x, w3)  v = Add(c, b3)
}"""
PLAIN = "(float[2,3,4] x) => (q, k, v) { q = MatMul(x, w1)  k = MatMul(x, w2)  v = MatMul(x, w3) }"
OPERANDS = {
    "w1": weights(4, 5, seed=1), "w2": weights(4, 6, seed=2), "w3": weights(4, 7, seed=3),
    "b1": weights(5, seed=4), "b2": weights(6, seed=5), "b3": weights(7, seed=6),
}  # fmt: skip


WEIGHTS = {name: OPERANDS[name] for name in ("w1", "w2", "w3")}


def test_merges_pairs():
    check_rule(P.MergeTwoMatMuls, model(PLAIN, **WEIGHTS), sites=3, becomes=["MatMul", "MatMul", "Split"])
    graph = model(QKV, **OPERANDS)
    refuses(P.MergeTwoMatMuls, graph, "merge as well")
    merged = check_rule(P.MergeTwoBiasedMatMuls, graph, sites=3)
    assert len(merged[0].nodes) == len(graph.nodes) - 1


def test_merges_three_at_once():
    check_rule(P.MergeThreeMatMuls, model(PLAIN, **WEIGHTS), becomes=["MatMul", "Split"])
    graph = model(QKV, **OPERANDS)
    refuses(P.MergeThreeMatMuls, graph, "merge as well")
    check_rule(P.MergeThreeBiasedMatMuls, graph, becomes=["MatMul", "Add", "Split"])


@pytest.mark.parametrize(
    ("merge", "separate"),
    [
        (P.MergeThreeMatMuls, P.SeparateThreeMatMuls),
        (P.MergeThreeBiasedMatMuls, P.SeparateThreeBiasedMatMuls),
        (P.MergeTwoMatMuls, P.SeparateTwoMatMuls),
        (P.MergeTwoBiasedMatMuls, P.SeparateTwoBiasedMatMuls),
    ],
)
def test_separating_undoes_merging(merge, separate):
    biased = "Biased" in merge.__name__
    graph = model(QKV, **OPERANDS) if biased else model(PLAIN, **WEIGHTS)
    merged = Rewriter([merge()], "site", deployment=False).candidates(graph)[0].apply()
    (back,) = check_rule(separate, merged)
    assert len(back.nodes) == len(graph.nodes)
    # An Add may have its operands the other way round.
    assert biased or back.hash == graph.hash


def test_large_weights_come_back_unchanged():
    operands = {f"w{i}": weights(80, 60, seed=i) for i in range(2)}
    graph = model("(float[2,80] x) => (y, z) { y = MatMul(x, w0)  z = MatMul(x, w1) }", **operands)
    (merged,) = check_rule(P.MergeTwoMatMuls, graph)
    assert check_rule(P.SeparateTwoMatMuls, merged)[0].hash == graph.hash


def test_separates_a_fused_projection():
    text = "(float[2,3,4] x) => (q, k, v) {{ t = MatMul(x, w) {}  q, k, v = Split<axis=-1, num_outputs=3>({}) }}"
    plain = model(text.format("", "t"), w=weights(4, 9))
    check_rule(P.SeparateThreeMatMuls, plain, becomes=["MatMul"] * 3)
    biased = model(text.format("u = Add(t, b)", "u"), w=weights(4, 9), b=weights(1, 9))
    check_rule(P.SeparateThreeBiasedMatMuls, biased, becomes=["MatMul", "Add"] * 3)


def test_scalar_bias_is_spread_over_the_columns():
    graph = model(QKV, **{**OPERANDS, "b1": weights(1)})
    check_rule(P.MergeThreeBiasedMatMuls, graph)


def test_bias_that_varies_along_rows_is_refused():
    graph = model(QKV, **{**OPERANDS, "b1": weights(3, 5)})
    refuses(P.MergeThreeBiasedMatMuls, graph, "more than the columns")
    assert len(Rewriter([P.MergeTwoBiasedMatMuls()], "site", deployment=False).candidates(graph)) == 1
    pair = "(float[3,4] x) => (y, z) { s = MatMul(x, w1)  y = Add(s, b1)  t = MatMul(x, w2)  z = Add(t, b2) }"
    two = {name: OPERANDS[name] for name in ("w1", "w2", "b2")}
    refuses(P.MergeTwoBiasedMatMuls, model(pair, **two, b1=weights(3, 5)), "more than the columns")


def test_weights_of_different_batches_are_refused():
    graph = model(
        "(float[2,3,4] x) => (y, z) { y = MatMul(x, v)  z = MatMul(x, w) }", v=weights(4, 5), w=weights(2, 4, 5)
    )
    refuses(P.MergeTwoMatMuls, graph, "more than their columns")


def test_split_along_rows_is_not_separated():
    text = "(float[4,4] x) => (y, z) {{ t = MatMul(x, w) {}  y, z = Split<axis=0, num_outputs=2>({}) }}"
    refuses(P.SeparateTwoMatMuls, model(text.format("", "t"), w=weights(4, 5)), "not along columns")
    biased = model(text.format("u = Add(t, b)", "u"), w=weights(4, 5), b=weights(5))
    refuses(P.SeparateTwoBiasedMatMuls, biased, "not along columns")
    text = "(float[6,4] x) => (p, q, r) {{ t = MatMul(x, w) {}  p, q, r = Split<axis=0, num_outputs=3>({}) }}"
    refuses(P.SeparateThreeMatMuls, model(text.format("", "t"), w=weights(4, 6)), "not along columns")
    biased = model(text.format("u = Add(t, b)", "u"), w=weights(4, 6), b=weights(6))
    refuses(P.SeparateThreeBiasedMatMuls, biased, "not along columns")


def test_bias_along_rows_is_not_separated():
    text = "(float[4,4] x) => (y, z) { t = MatMul(x, w)  u = Add(t, b)  y, z = Split<axis=1, num_outputs=2>(u) }"
    refuses(P.SeparateTwoBiasedMatMuls, model(text, w=weights(4, 6), b=weights(4, 1)), "more than the columns")


def test_shared_right_operand():
    graph = model("(float[2,3,4] a, float[2,5,4] b) => (y, z) { y = MatMul(a, w)  z = MatMul(b, w) }", w=weights(4, 6))
    check_rule(P.MergeMatMulsSharedRight, graph, becomes=["Concat", "MatMul", "Split"])


def test_shared_right_operand_conditions():
    text = "(float[2,3,4] a, float[1,3,4] b) => (y, z) {{ y = MatMul(a, w)  z = MatMul({}, w) }}"
    refuses(P.MergeMatMulsSharedRight, model(text.format("b"), w=weights(4, 6)), "more than their rows")
    constant = model(text.format("c"), w=weights(4, 6), c=weights(2, 3, 4))
    refuses(P.MergeMatMulsSharedRight, constant, "constant")


def test_products_that_depend_on_each_other_are_not_merged():
    graph = model("(float[4,4] x) => (z) { y = MatMul(x, w)  r = Relu(y)  z = MatMul(r, w) }", w=weights(4, 4))
    refuses(P.MergeMatMulsSharedRight, graph, "cycle")
