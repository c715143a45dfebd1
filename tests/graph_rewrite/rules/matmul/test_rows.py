"""Encoder layers on rows: batch and length merged once per layer, and what is left between layers cancels."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.algebra import elimination_shape
from graph_rewrite.rules.matmul import rows as R
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

HEADS = "q_num_heads=2, kv_num_heads=2"
ATTENTION = """
    q0{n} = MatMul(x{n}, wq)  q{n} = Add(q0{n}, bq)  k0{n} = MatMul(x{n}, wk)  k{n} = Add(k0{n}, bk)
    v0{n} = MatMul(x{n}, wv)  v{n} = Add(v0{n}, bv)  c{n} = Attention<HEADS>(q{n}, k{n}, v{n}{mask})
    o0{n} = MatMul(c{n}, wo)  o{n} = Add(o0{n}, bo)  m{n} = Add(o{n}, x{n})
    n{n} = LayerNormalization<epsilon=1e-5{axis}>(m{n}, g, s)
""".replace("HEADS", HEADS)
FEED_FORWARD = """
    d0{n} = MatMul(n{n}, w1)  d{n} = Add(d0{n}, b1)  f{n} = {f}(d{n})  e0{n} = MatMul(f{n}, w2)  e{n} = Add(e0{n}, b2)
    z{n} = Add(n{n}, e{n})  y{n} = LayerNormalization<epsilon=1e-5>(z{n}, h, t)
"""
GIVEN = {f"w{i}": weights(4, 4, seed=ord(i)) for i in "qkvo"} | {f"b{i}": weights(4, seed=ord(i)) for i in "qkvo2"}
GIVEN |= {"w1": weights(4, 6), "w2": weights(6, 4), "b1": weights(6)} | {i: weights(4, seed=ord(i)) for i in "gsht"}
HEADS_IN_ROWS = ["Reshape"] + ["Gemm", "Reshape"] * 3 + ["Attention", "Reshape", "Gemm", "Add", "LayerNormalization"]
HIDDEN_IN_ROWS = ["Gemm", "Gelu", "Gemm", "Add", "LayerNormalization"]


def attention(n="", mask="", axis=""):
    return ATTENTION.format(n=n, mask=mask, axis=axis)


def feed_forward(n="", f="Gelu"):
    return FEED_FORWARD.format(n=n, f=f)


def network(body, result, shape="2,3,4", **more):
    given = {**GIVEN, **more}
    used = {name: array for name, array in given.items() if f" {name})" in body or f" {name}," in body}
    return model(f"(float[{shape}] x) => ({result}) {{ {body} }}", **used)


@pytest.mark.parametrize("shape", ["1,3,4", "2,3,4", "2,1,4"])
def test_attention_layer(shape):
    check_rule(R.AttentionLayerAsRows, network(attention(), "n", shape), becomes=[*HEADS_IN_ROWS, "Reshape"])


def test_attention_layer_keeps_its_mask():
    masked = network(attention(mask=", mask"), "n", mask=weights(3, 3))
    check_rule(R.AttentionLayerAsRows, masked, becomes=[*HEADS_IN_ROWS, "Reshape"])


@pytest.mark.parametrize("f", ["Gelu", "Relu"])
def test_feed_forward_network(f):
    body = "n = Neg(x)" + feed_forward(f=f)
    hidden = [f if op == "Gelu" else op for op in HIDDEN_IN_ROWS]
    check_rule(R.FeedForwardAsRows, network(body, "y"), becomes=["Neg", "Reshape", *hidden, "Reshape"])


def test_sum_keeps_its_form():
    body = ("n = Neg(x)" + feed_forward()).replace("Add(n, e)", "Sum(n, e)")
    check_rule(R.FeedForwardAsRows, network(body, "y"), becomes=[
        "Neg", "Reshape", "Gemm", "Gelu", "Gemm", "Sum", "LayerNormalization", "Reshape"
    ])  # fmt: skip


def test_encoder_layers_leave_one_reshape_at_each_end():
    second = (attention("b") + feed_forward("b")).replace("xb", "y")
    graph = network(attention() + feed_forward() + second, "yb")
    merged, _ = check_rule(R.EncoderLayerAsRows, graph, sites=2)
    rules = [R.EncoderLayerAsRows(), elimination_shape.ComposeReshapes(), elimination_shape.DropReshape()]
    rewriter = Rewriter(rules, "site", deployment=False)
    while candidates := rewriter.candidates(merged):
        merged = candidates[0].apply()
    # Per layer: three for the heads and one for the context; and one at each end.
    assert ops(merged).count("Reshape") == 2 * 4 + 2
    assert ops(merged).count("Gemm") == 12
    assert "MatMul" not in ops(merged)


def test_conditions():
    along_rows = network(attention(), "n", bq=weights(3, 1))
    refuses(R.AttentionLayerAsRows, along_rows, "more than the columns")
    over_two = network(
        "n = Neg(x)" + feed_forward().replace("1e-5", "1e-5, axis=1"), "y", h=weights(3, 4), t=weights(3, 4)
    )
    refuses(R.FeedForwardAsRows, over_two, "more than the last axis")
    wide = network("n = Neg(x)" + feed_forward(), "y", h=weights(1), t=weights(4))
    refuses(R.FeedForwardAsRows, wide, "per channel")
    matrix = network("n = Neg(x)" + feed_forward(), "y", "3,4")
    refuses(R.FeedForwardAsRows, matrix, "no leading axes")
