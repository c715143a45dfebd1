"""Fused operators of ONNX Runtime against what they replace, both ways: Add, Gelu, Conv, MatMul."""

import numpy as np
import pytest

from graph_rewrite.rules.fusion import fused_matmul as M
from graph_rewrite.rules.fusion import runtime_operators as F
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done
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
    refuses(rule, model(RESIDUAL.replace("[2,5,8]", "[2,1,5,8]"), **NORM), "2 or 3 axes")
    refuses(rule, model(RESIDUAL.replace("float[2,5,8] skip", "float[2,1,8] skip"), **NORM), "more than the batch")
    text = RESIDUAL.replace("float[2,5,8] x, float[2,5,8] skip", "float[2,1,8] x, float[1,5,8] skip")
    refuses(rule, model(text, **NORM), "the shape of the sum")
    text = """(double[2,5,8] x, double[2,5,8] skip, double[8] gamma) => (y) { s = Add(x, skip)
        y = LayerNormalization(s, gamma) }"""
    refuses(rule, model(text), "float32 only")


@pytest.mark.parametrize(("approximate", "fuse", "split", "fused"), [
    ("none", F.FuseBiasGelu, F.SplitBiasGelu, "BiasGelu"), ("tanh", F.FuseBiasFastGelu, F.SplitFastGelu, "FastGelu"),
])  # fmt: skip
def test_bias_and_gelu(approximate, fuse, split, fused):
    text = f'(float[2,5,8] x) => (y) {{ t = Add(x, bias) y = Gelu<approximate="{approximate}">(t) }}'
    (joined,) = check_rule(fuse, model(text, bias=weights(8)), becomes=[fused])
    check_rule(split, joined, becomes=["Add", "Gelu"])
    refuses(fuse, model(text, bias=weights(5, 1)), "one number per channel")


ACTIVATIONS = {
    "Relu(c)": F.FuseConvRelu, "Sigmoid(c)": F.FuseConvSigmoid, "Tanh(c)": F.FuseConvTanh,
    "LeakyRelu<alpha=0.2>(c)": F.FuseConvLeakyRelu, "Clip(c, low, high)": F.FuseConvClip,
}  # fmt: skip


@pytest.mark.parametrize("conv", ["Conv(x, w)", "Conv<pads=[1,0,1,0], strides=[2,1], group=2>(x, w2, b)"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_convolution_and_activation(conv, activation):
    known = {"w": weights(4, 4, 3, 3), "w2": weights(4, 2, 3, 3), "b": weights(4)}
    known |= {"low": np.float32(-0.5), "high": np.float32(6)}
    text = f"(float[1,4,7,7] x) => (y) {{ c = {conv} y = {activation} }}"
    used = {name: value for name, value in known.items() if f", {name})" in text or f", {name}, " in text}
    (fused,) = check_rule(ACTIVATIONS[activation], model(text, **used), becomes=["FusedConv"], rtol=FLOAT32)
    check_rule(F.SplitFusedConv, fused, becomes=["Conv", activation.split("(")[0].split("<")[0]], rtol=FLOAT32)


def test_convolution_residual_and_relu():
    text = "(float[1,4,7,7] x, float[1,4,5,5] z) => (y) { c = Conv(x, w) s = Add(z, c) y = Relu(s) }"
    (fused,) = check_rule(F.FuseConvAddRelu, model(text, w=weights(4, 4, 3, 3)), becomes=["FusedConv"])
    check_rule(F.SplitFusedConv, fused, becomes=["Add", "Conv", "Relu"])
    broadcast = text.replace("float[1,4,5,5] z", "float[1,4,1,1] z")
    refuses(F.FuseConvAddRelu, model(broadcast, w=weights(4, 4, 3, 3)), "broadcast")


def test_convolution_in_double_is_not_fused():
    text = "(double[1,4,7,7] x, double[4,4,3,3] w) => (y) { c = Conv(x, w) y = Relu(c) }"
    refuses(F.FuseConvRelu, model(text), "float32 only")


def test_unknown_activation_of_a_fused_convolution_stays():
    text = """(float[1,4,7,7] x) => (float[1,4,5,5] y)
        { y = com.microsoft.FusedConv<activation="HardSigmoid", activation_params=[0.2, 0.5]>(x, w) }"""
    refuses(F.SplitFusedConv, model(text, w=weights(4, 4, 3, 3)), "HardSigmoid")


@pytest.mark.parametrize(("shapes", "transposed", "operands", "rule", "more"), [
    (("4,5", "4,6"), "a", "t, b", M.FuseLeftTranspose, M.FuseLeftTransposeMore),
    (("5,4", "6,4"), "b", "a, t", M.FuseRightTranspose, M.FuseRightTransposeMore),
])  # fmt: skip
def test_product_with_a_transposed_operand(shapes, transposed, operands, rule, more):
    text = f"""(float[2,3,{shapes[0]}] a, float[2,3,{shapes[1]}] b) => (y)
        {{ t = Transpose<perm=[0,1,3,2]>({transposed}) y = MatMul({operands}) }}"""
    (fused,) = check_rule(rule, model(text), becomes=["FusedMatMul"])
    check_rule(M.SplitFusedMatMul, fused, becomes=["MatMul", "Transpose"])
    again = text.replace("MatMul(", "com.microsoft.FusedMatMul<alpha=0.5>(")
    check_rule(more, model(again), becomes=["FusedMatMul"])


def test_double_transposition_cancels():
    text = """(float[4,5] a, float[4,6] b) => (y) { t = Transpose<perm=[1,0]>(a) u = Transpose<perm=[1,0]>(t)
        y = com.microsoft.FusedMatMul<transA=1>(u, b) }"""
    (once,) = check_rule(M.FuseLeftTransposeMore, model(text), becomes=["FusedMatMul", "Transpose"])
    (twice,) = check_rule(M.FuseLeftTransposeMore, once, becomes=["FusedMatMul"])
    assert [node.attrs for node in twice.nodes.values()] == [{"transA": 1}]


def test_products_that_the_fused_operator_does_not_know():
    moved = "(float[4,3,5] a, float[3,5,6] b) => (y) { t = Transpose<perm=[1,0,2]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(moved), "more than exchange the last two axes")
    vector = "(float[5,4] a, float[5] b) => (y) { t = Transpose<perm=[1,0]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(vector), "an operand is a vector")
    integers = "(int32[5,4] a, int32[5,6] b) => (y) { t = Transpose<perm=[1,0]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(integers), "float32 only")


def test_scaled_product():
    text = "(float[2,4,5] a, float[2,5,6] b) => (y) {{ p = {}(a, b) y = {}(p, c) }}"
    times, by = text.format("MatMul", "Mul"), text.format("MatMul", "Div")
    scale = np.float32(0.3)
    (fused,) = check_rule(M.FuseScaledMatMul, model(times, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    check_rule(M.SplitFusedMatMul, fused, becomes=["MatMul", "Mul"], rtol=FLOAT32)
    check_rule(M.FuseDividedMatMul, model(by, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    again = text.format("com.microsoft.FusedMatMul<alpha=0.5>", "Mul")
    check_rule(M.FuseScaleMore, model(again, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    refuses(M.FuseDividedMatMul, model(by, c=np.float32(0)), "the scale is inf")


@pytest.mark.parametrize(("rule", "form"), [(F.FuseBiasGelu, "none"), (F.FuseBiasFastGelu, "tanh")])
def test_scalars_have_no_channels(rule, form):
    graph = model(f'(float x) => (y) {{ t = Add(x, b)  y = Gelu<approximate="{form}">(t) }}', b=np.float32(2))
    refuses(rule, graph, "one number per channel")


def test_rows_of_a_matrix_are_no_batch():
    head = "(float[4,8] x, float[1,8] skip, float[8] g, float[8] h) => (y)"
    graph = model(f"{head} {{ t = Add(x, skip)  y = LayerNormalization(t, g, h) }}")
    refuses(F.FuseSkipLayerNormalization, graph, "more than the batch")
