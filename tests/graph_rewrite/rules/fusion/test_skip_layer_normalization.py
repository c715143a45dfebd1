"""SkipLayerNormalization of ONNX Runtime against Add and LayerNormalization, both ways."""

import pytest

from graph_rewrite.rules.fusion import skip_layer_normalization as F
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

NORM = {"gamma": weights(8, seed=1), "beta": weights(8, seed=2)}
RESIDUAL = """(float[2,5,8] x, float[2,5,8] skip) => (y)
    { s = Add(x, skip) y = LayerNormalization<epsilon=1e-6>(s, gamma, beta) }"""


def test_skip_layer_normalization_and_back():
    (fused,) = check_rule(F.FuseSkipLayerNormalization, model(RESIDUAL, **NORM), becomes=["SkipLayerNormalization"])
    check_rule(F.SplitSkipLayerNormalization, fused, becomes=["Add", "LayerNormalization"])


@pytest.mark.parametrize(("x", "skip"), [("5,8", "2,5,8"), ("2,5,8", "1,5,8"), ("5,8", "5,8")])
def test_skip_that_is_broadcast_over_the_batch(x, skip):
    text = RESIDUAL.replace("float[2,5,8] x, float[2,5,8] skip", f"float[{x}] x, float[{skip}] skip")
    check_rule(F.FuseSkipLayerNormalization, model(text, **NORM), becomes=["SkipLayerNormalization"])


def test_skip_layer_normalization_without_beta():
    text = RESIDUAL.replace("gamma, beta", "gamma")
    check_rule(F.FuseSkipLayerNormalization, model(text, gamma=NORM["gamma"]), becomes=["SkipLayerNormalization"])


def test_skip_layer_normalization_of_a_stream_that_goes_on():
    text = """(float[2,5,8] x, float[2,5,8] skip) => (z) { s = Add(x, skip) y = LayerNormalization(s, gamma, beta)
        z = Mul(s, y) }"""
    graph = model(text, **NORM)
    refuses(F.FuseSkipLayerNormalization, graph, "used elsewhere")
    (fused,) = check_rule(F.FuseSkipLayerNormalizationWithSum, graph, becomes=["Mul", "SkipLayerNormalization"])
    check_rule(F.SplitSkipLayerNormalizationWithSum, fused, becomes=["Add", "LayerNormalization", "Mul"])
    refuses(F.FuseSkipLayerNormalizationWithSum, model(RESIDUAL, **NORM), "nothing else needs the sum")


def test_skip_layer_normalization_takes_the_bias():
    text = """(float[2,5,8] x, float[2,5,8] skip) => (y) { t = Add(bias, x) s = Add(skip, t)
        y = LayerNormalization(s, gamma, beta) }"""
    graph = model(text, bias=weights(8, seed=3), **NORM)
    (fused,) = check_rule(F.FuseSkipLayerNormalizationWithBias, graph, becomes=["SkipLayerNormalization"])
    check_rule(F.SplitSkipLayerNormalization, fused, becomes=["Add", "Add", "LayerNormalization"])
    graph = model(text, bias=weights(5, 8, seed=3), **NORM)
    refuses(F.FuseSkipLayerNormalizationWithBias, graph, "one number per channel")


def test_other_normalisations_are_no_skip_layer_normalization():
    rule = F.FuseSkipLayerNormalization
    text = RESIDUAL.replace("epsilon=1e-6", "axis=1")
    refuses(rule, model(text, gamma=weights(5, 8), beta=weights(5, 8)), "more than the last axis")
    refuses(rule, model(RESIDUAL, gamma=weights(5, 8), beta=NORM["beta"]), "not one number per channel")
    refuses(rule, model(RESIDUAL.replace("[2,5,8]", "[2,1,5,8]"), **NORM), "2 or 3 axes")
    refuses(rule, model(RESIDUAL.replace("float[2,5,8] skip", "float[2,1,8] skip"), **NORM), "more than the batch")
    text = RESIDUAL.replace("float[2,5,8] x, float[2,5,8] skip", "float[2,1,8] x, float[1,5,8] skip")
    refuses(rule, model(text, **NORM), "the shape of the sum")
    text = """(double[2,5,8] x, double[2,5,8] skip, double[8] gamma) => (y) { s = Add(x, skip)
        y = LayerNormalization(s, gamma) }"""
    refuses(rule, model(text), "float32 only")


def test_rows_of_a_matrix_are_no_batch():
    head = "(float[4,8] x, float[1,8] skip, float[8] g, float[8] h) => (y)"
    graph = model(f"{head} {{ t = Add(x, skip)  y = LayerNormalization(t, g, h) }}")
    refuses(F.FuseSkipLayerNormalization, graph, "more than the batch")
