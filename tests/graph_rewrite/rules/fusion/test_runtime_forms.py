"""Forms in plain ONNX that ONNX Runtime's passes leave alone: sound, and left alone indeed."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.algebra import elementwise as E
from graph_rewrite.rules.fusion import runtime_forms as R
from tests.graph_rewrite.optimized import optimized_ops
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

WEIGHTS = {"w": weights(8, 8), "b": weights(8, seed=1), "gamma": weights(8, seed=2), "beta": weights(8, seed=3)}


def network(body, *names):
    return model(f"(float[2,5,8] x) => (y) {{ {body} }}", **{name: WEIGHTS[name] for name in names})


def residual(norm="LayerNormalization(s, gamma, beta)"):
    return network(f"m = MatMul(x, w) s = Add(m, x) y = {norm}", "w", "gamma", "beta")


def test_residual_as_sum_keeps_skip_layer_normalization_away():
    graph = residual()
    assert "SkipLayerNormalization" in optimized_ops(graph)
    (after,) = check_rule(R.ResidualAsSum, graph, becomes=["LayerNormalization", "MatMul", "Sum"])
    assert "SkipLayerNormalization" not in optimized_ops(after)
    assert {"Sum", "LayerNormalization"} <= set(optimized_ops(after))


def test_residual_stream_that_goes_on():
    text = "m = MatMul(x, w) s = Add(x, m) n = LayerNormalization(s, gamma, beta) y = Sub(s, n)"
    graph = network(text, "w", "gamma", "beta")
    check_rule(R.ResidualAsSum, graph, becomes=["LayerNormalization", "MatMul", "Sub", "Sum"])


def test_other_sums_stay():
    refuses(R.ResidualAsSum, network("m = MatMul(x, w) y = Add(m, x)", "w"), "no LayerNormalization follows")
    as_scale = "(float[8] x) => (y) { s = Add(x, b) y = LayerNormalization(a, s) }"
    refuses(R.ResidualAsSum, model(as_scale, b=WEIGHTS["b"], a=weights(5, 8)), "no LayerNormalization follows")


def test_candidates_follow_when_the_normalization_goes():
    """The condition looks at consumers, so a rewrite of a consumer must be seen."""
    rewriter = Rewriter([E.AddsAsSum(), R.ResidualAsSum()], deployment=False)
    text = "t = Add(x, b) s = Add(t, x) y = LayerNormalization(s, gamma, beta)"
    graph = network(text, "b", "gamma", "beta")
    (first,) = (c for c in rewriter.candidates(graph) if c.rule == "AddsAsSum")
    after = first.apply()
    fresh = Rewriter(rewriter.rules, deployment=False).candidates(after)
    assert [c.key for c in rewriter.candidates(after)] == [c.key for c in fresh]
    assert not any(c.rule == "ResidualAsSum" for c in fresh)


@pytest.mark.parametrize("follows", ["y = Relu(s)", "y = Gelu(s)"])
def test_bias_as_sum_keeps_gemm_and_bias_gelu_away(follows):
    graph = network(f"m = MatMul(x, w) s = Add(b, m) {follows}", "w", "b")
    assert "Gemm" in optimized_ops(graph)
    (after,) = check_rule(R.BiasAsSum, graph, becomes=["MatMul", "Sum", follows[4:8]])
    assert sorted(optimized_ops(after)) == sorted(["MatMul", "Sum", follows[4:8]])


def test_what_is_no_bias_stays():
    graph = model("(float[2,5,8] x) => (y) { m = MatMul(x, w) y = Add(m, b) }", w=WEIGHTS["w"], b=np.float32(1.0))
    refuses(R.BiasAsSum, graph, "one number per column")


def test_way_back():
    (after,) = check_rule(R.ResidualAsSum, residual())
    check_rule(E.SumAsAdds, after, becomes=["Add", "LayerNormalization", "MatMul"])
