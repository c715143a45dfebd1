"""FusedConv of ONNX Runtime against Conv and an activation, both ways."""

import numpy as np
import pytest

from graph_rewrite.rules.fusion import fused_conv as F
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done


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
