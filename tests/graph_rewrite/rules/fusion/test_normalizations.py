"""LayerNormalization, RMSNormalization and Softmax: the spelled-out forms against the operators, both ways."""

import numpy as np
import pytest

from graph_rewrite.onnx_files.assembly import named_in
from graph_rewrite.rules.fusion import normalizations as N
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done
LAYER_NORM = """m = ReduceMean<keepdims=1>(x, mean_axes) d = Sub(x, m) q = {} v = ReduceMean<keepdims=1>(q, axes)
    e = Add(v, eps) r = Sqrt(e) y0 = Div(d, r)"""
AFFINE = "y1 = Mul(gamma, y0) y = Add(y1, beta)"
RMS_NORM = "q = Pow(x, two) v = ReduceMean<keepdims=1>(q, axes) e = Add(v, eps) r = Sqrt(e) {} y = Mul(gamma, y0)"
SOFTMAX = """m = ReduceMax<keepdims=1>(x, max_axes) d = Sub(x, m) e = Exp(d) s = ReduceSum<keepdims=1>(e, axes)
    y = Div(e, s)"""
PARTS = {"mean_axes": [-1], "axes": [-1], "eps": np.float32(1e-5), "two": np.float32(2.0)}
WEIGHTS = {"gamma": weights(6, seed=1), "beta": weights(6, seed=2)}


def network(body, **changed):
    return model(f"(float[2,5,6] x) => (y) {{ {body} }}", **named_in(body, {**PARTS, **WEIGHTS, **changed}))


SPELLED_OUT = {
    N.FuseLayerNormalization: LAYER_NORM.format("Pow(d, two)") + AFFINE,
    N.FuseLayerNormalizationOfProduct: LAYER_NORM.format("Mul(d, d)") + AFFINE,
    N.FuseRMSNormalization: RMS_NORM.format("i = Reciprocal(r) y0 = Mul(x, i)"),
    N.FuseDividedRMSNormalization: RMS_NORM.format("y0 = Div(x, r)"),
}


@pytest.mark.parametrize("rule", SPELLED_OUT)
@pytest.mark.parametrize("axes", [[-1], [2], [-2, -1], [2, 1]])
def test_spelled_out_normalization_becomes_one_operator(rule, axes):
    changed = {"axes": axes, "mean_axes": axes}
    if len(axes) == 2:
        changed |= {"gamma": weights(5, 6, seed=1), "beta": weights(5, 6, seed=2)}
    fused = "RMSNormalization" if "RMS" in rule.__name__ else "LayerNormalization"
    (after,) = check_rule(rule, network(SPELLED_OUT[rule], **changed), becomes=[fused], rtol=FLOAT32)
    assert [node.attrs["axis"] for node in after.nodes.values()] == [-len(axes)]


def test_normalization_without_weights():
    body = LAYER_NORM.format("Pow(d, two)").replace("y0", "y")
    check_rule(N.FusePlainLayerNormalization, network(body), becomes=["LayerNormalization"], rtol=FLOAT32)


@pytest.mark.parametrize("rule", SPELLED_OUT)
def test_other_axes_exponents_and_weights_are_refused(rule):
    body = SPELLED_OUT[rule]
    refuses(rule, network(body, axes=[1], mean_axes=[1]), "not all over the last axes")
    refuses(rule, network(body, gamma=weights(5, 6)), "the shape of the normalised axes")
    if "two" in body:
        refuses(rule, network(body, two=np.float32(4.0)), "the exponent is 4.0 instead of 2")
    if "mean_axes" in body:
        refuses(rule, network(body, mean_axes=[1, 2]), "not all over the last axes")


@pytest.mark.parametrize("norm", ["n = LayerNormalization(x, gamma, beta)", "n = LayerNormalization(x, gamma)"])
def test_weights_move_into_layer_normalization(norm):
    for c in (weights(6, seed=3), np.float32([[0.5]])):
        graph = network(f"{norm} y = Mul(c, n)", c=c)
        check_rule(N.ScaleIntoLayerNormalization, graph, becomes=["LayerNormalization"], rtol=FLOAT32)
    graph = network(f"{norm} y = Add(c, n)", c=weights(6, seed=3))
    check_rule(N.BiasIntoLayerNormalization, graph, becomes=["LayerNormalization"], rtol=FLOAT32)


def test_weights_of_other_shapes_stay_outside():
    norm = "n = LayerNormalization(x, gamma, beta)"
    refuses(N.ScaleIntoLayerNormalization, network(f"{norm} y = Mul(c, n)", c=weights(5, 1)), "the shape of the scale")
    refuses(N.BiasIntoLayerNormalization, network(f"{norm} y = Add(c, n)", c=np.float32(0.5)), "the shape of the scale")


def test_bias_of_run_time_stays():
    text = "(float[2,5,6] x, float[6] beta) => (y) {{ n = LayerNormalization(x, gamma, beta) y = {}(n, c) }}"
    constants = {"gamma": WEIGHTS["gamma"], "c": weights(6)}
    refuses(N.ScaleIntoLayerNormalization, model(text.format("Mul"), **constants), "bias is not constant")
    refuses(N.BiasIntoLayerNormalization, model(text.format("Add"), **constants), "bias is not constant")


def test_operators_are_spelled_out_and_recognised_again():
    (spelled,) = check_rule(N.ExpandLayerNormalization, network("y = LayerNormalization(x, gamma, beta)"), rtol=FLOAT32)
    check_rule(N.FuseLayerNormalizationOfProduct, spelled, becomes=["LayerNormalization"], rtol=FLOAT32)
    check_rule(N.ExpandLayerNormalization, network("y = LayerNormalization(x, gamma)"), rtol=FLOAT32)
    check_rule(N.ExpandRMSNormalization, network("y = RMSNormalization(x, gamma)"), rtol=FLOAT32)
    wide = network("y = LayerNormalization<axis=1>(x, gamma, beta)", gamma=weights(5, 6), beta=weights(5, 6))
    check_rule(N.ExpandLayerNormalization, wide, rtol=FLOAT32)


@pytest.mark.parametrize("axis", [-1, 2, 1])
def test_softmax_and_back(axis):
    (fused,) = check_rule(N.FuseSoftmax, network(SOFTMAX, axes=[axis], max_axes=[axis]), becomes=["Softmax"])
    check_rule(N.ExpandSoftmax, fused, becomes=["Div", "Exp", "ReduceMax", "ReduceSum", "Sub"])


def test_softmax_over_other_axes_is_refused():
    refuses(N.FuseSoftmax, network(SOFTMAX, axes=[1], max_axes=[2]), "one and the same axis")
    refuses(N.FuseSoftmax, network(SOFTMAX, axes=[1, 2], max_axes=[1, 2]), "one and the same axis")


def test_scalar_has_no_axes_to_normalise():
    # The exponent of two axes gives the power of a scalar two axes.
    text = """(float x) => (y) <int64[1] axes = {1}> {
        p = Pow(x, two)  v = ReduceMean(p, axes)  e = Add(v, eps)  r = Sqrt(e)  n = Div(x, r)  y = Mul(n, gamma)
    }"""
    graph = model(text, two=np.full((1, 1), 2.0), eps=np.float32(1e-5), gamma=np.ones(1))
    refuses(N.FuseDividedRMSNormalization, graph, "a scalar has no axes")
