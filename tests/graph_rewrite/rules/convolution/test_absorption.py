"""BatchNormalization, scales and shifts around a convolution go into its filters and bias."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.rules.convolution import absorption as C
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

TOLERANCE = 1e-6  # filters are transformed in float32


def statistics(channels, seed=10):
    """Scale, bias, mean and variance of a BatchNormalization."""
    return {
        "g": weights(channels, seed=seed), "h": weights(channels, seed=seed + 1),
        "mean": weights(channels, seed=seed + 2), "var": np.abs(weights(channels, seed=seed + 3)) + 0.1,
    }  # fmt: skip


AFTER = "(float[2,4,6,5] x) => (y) {{ t = Conv<{}>(x, w{}) y = BatchNormalization<epsilon=0.01>(t, g, h, mean, var) }}"
BEFORE = "(float[2,4,6,5] x) => (y) {{ t = BatchNormalization(x, g, h, mean, var)  y = Conv<{}>(t, w{}) }}"


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize(("attrs", "channels"), [("pads=[1,1,1,1]", 4), ('group=2, auto_pad="SAME_UPPER"', 2)])
def test_batch_norm_after_a_convolution(attrs, channels, bias):
    operands = {"w": weights(6, channels, 3, 3), **({"b": weights(6)} if bias else {}), **statistics(6)}
    check_rule(C.FoldBatchNormAfterConv, model(AFTER.format(attrs, bias), **operands), becomes=["Conv"], rtol=TOLERANCE)


@pytest.mark.parametrize(("first", "second"), [("", ", b"), (", a", ""), ("", "")])
def test_batch_norm_after_two_joined_convolutions(first, second):
    text = (
        f"s = Conv<strides=[2,2]>(x, w{first})  t = Conv<pads=[0,0,1,1], strides=[2,2]>(z, v{second})"
        "  c = Concat<axis=1>(s, t)  y = BatchNormalization<epsilon=1e-3>(c, g, h, mean, var)"
    )
    biases = {"a": weights(3)} if first else {"b": weights(2)} if second else {}
    operands = {"w": weights(3, 4, 1, 1), "v": weights(2, 4, 1, 1), **biases, **statistics(5)}
    graph = model(f"(float[1,4,6,5] x, float[1,4,5,4] z) => (y) {{ {text} }}", **operands)
    check_rule(C.FoldBatchNormAfterTwoConvs, graph, becomes=["Concat", "Conv", "Conv"], rtol=TOLERANCE)


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize(("attrs", "channels"), [("strides=[2,1]", 4), ("group=2", 2), ("group=4", 1)])
def test_batch_norm_before_a_convolution(attrs, channels, bias):
    operands = {"w": weights(8, channels, 3, 2), **({"b": weights(8)} if bias else {}), **statistics(4)}
    graph = model(BEFORE.format(attrs, bias), **operands)
    check_rule(C.FoldBatchNormBeforeConv, graph, becomes=["Conv"], rtol=TOLERANCE)


@pytest.mark.parametrize("attrs", ["pads=[0,0,0,1]", 'auto_pad="SAME_LOWER"'])
def test_batch_norm_before_a_padded_convolution_stays(attrs):
    graph = model(BEFORE.format(attrs, ""), w=weights(6, 4, 3, 3), **statistics(4))
    refuses(C.FoldBatchNormBeforeConv, graph, "pads its input")


@settings(max_examples=15)
@given(data=st.data())
def test_batch_norm_folds_at_any_shape(data):
    def integers(low, high, count):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    rank = data.draw(st.sampled_from([1, 2, 3]))
    group, inner, outer = integers(1, 3, 3)
    kernel, strides, dilations = integers(1, 2, rank), integers(1, 3, rank), integers(1, 2, rank)
    pads = integers(0, 1, 2 * rank)
    size = ",".join(str(n) for n in integers(4, 6, rank))
    attrs = f"group={group}, strides={strides}, dilations={dilations}, pads={pads}"
    inputs = f"(float[1,{group * inner},{size}] x) => (y)"
    filters = {"w": weights(group * outer, inner, *kernel), "b": weights(group * outer)}
    after = f"{inputs} {{ t = Conv<{attrs}>(x, w, b)  y = BatchNormalization(t, g, h, mean, var) }}"
    check_rule(C.FoldBatchNormAfterConv, model(after, **filters, **statistics(group * outer)), rtol=TOLERANCE)
    before = f"{inputs} {{ t = BatchNormalization(x, g, h, mean, var)  y = Conv<{attrs}>(t, w, b) }}"
    graph = model(before, **filters, **statistics(group * inner))
    if any(pads):
        refuses(C.FoldBatchNormBeforeConv, graph, "pads its input")
    else:
        check_rule(C.FoldBatchNormBeforeConv, graph, rtol=TOLERANCE)


@pytest.mark.parametrize("shape", ["2,4", "2,4,5", "2,4,3,5"])
def test_batch_norm_as_mul_and_add(shape):
    graph = model(f"(float[{shape}] x) => (y) {{ y = BatchNormalization(x, g, h, mean, var) }}", **statistics(4))
    check_rule(C.BatchNormToMulAdd, graph, becomes=["Add", "Mul"], rtol=TOLERANCE)


def test_batch_norm_without_channels_stays():
    graph = model("(float[4] x) => (float[4] y) { y = BatchNormalization(x, g, h, mean, var) }", **statistics(1))
    refuses(C.BatchNormToMulAdd, graph, "no channels")


MUL_ADD = "(float[2,4,3,5] x) => (y) { t = Mul(s, x)  y = Add(t, c) }"


def test_mul_and_add_as_batch_norm():
    graph = model(MUL_ADD, s=weights(4, 1, 1), c=weights(1, 4, 1, 1))
    check_rule(C.MulAddToBatchNorm, graph, becomes=["BatchNormalization"])
    refuses(C.MulAddToBatchNorm, model(MUL_ADD, s=weights(4, 1, 1), c=weights(5)), "per channel")
    refuses(C.MulAddToBatchNorm, model(MUL_ADD, s=weights(4, 1, 1), c=weights(2, 1, 2, 1)[:, :, :1]), "per channel")
    flat = model("(float[2,4] x) => (y) { t = Mul(s, x)  y = Add(t, c) }", s=weights(4), c=weights(4))
    refuses(C.MulAddToBatchNorm, flat, "not an image")


AFFINE = "(float[2,4,6,5] x) => (y) {{ t = Conv<pads=[1,1,1,1], group={}>(x, w, b)  y = {}(t, s) }}"
SCALES = [weights(6, 1, 1), weights(1, 6, 1, 1), np.float32(0.3), weights(1)]


@pytest.mark.parametrize("s", SCALES)
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("rule", "op"), [(C.FoldScaleAfterConv, "Mul"), (C.FoldDivisorAfterConv, "Div"), (C.FoldShiftAfterConv, "Add")]
)
def test_scales_and_shifts_after_a_convolution(rule, op, group, s):
    graph = model(AFFINE.format(group, op), w=weights(6, 4 // group, 3, 3), b=weights(6), s=s)
    check_rule(rule, graph, becomes=["Conv"], rtol=TOLERANCE)


@pytest.mark.parametrize("s", SCALES)
def test_convolutions_without_bias(s):
    text = "(float[2,4,6,5] x) => (y) {{ t = Conv(x, w)  y = {}(t, s) }}"
    for rule, op in ((C.FoldScaleAfterConv, "Mul"), (C.FoldShiftAfterConv, "Add")):
        check_rule(rule, model(text.format(op), w=weights(6, 4, 3, 3), s=s), becomes=["Conv"], rtol=TOLERANCE)


def test_constants_along_other_axes_stay():
    for rule, op in ((C.FoldScaleAfterConv, "Mul"), (C.FoldDivisorAfterConv, "Div"), (C.FoldShiftAfterConv, "Add")):
        graph = model(AFFINE.format(1, op), w=weights(6, 4, 3, 3), b=weights(6), s=weights(6, 1))
        refuses(rule, graph, "more than the channels")


def test_division_by_zero_stays():
    text = "(float[2,4,6,5] x) => (y) { t = Conv(x, w)  y = Div(t, s) }"
    graph = model(text, w=weights(6, 4, 3, 3), s=np.zeros(1))
    refuses(C.FoldDivisorAfterConv, graph, "1 / s overflows")


def test_bias_of_a_convolution_as_add_and_back():
    graph = model("(float[2,4,6,5] x) => (y) { y = Conv(x, w, b) }", w=weights(6, 4, 3, 3), b=weights(6))
    (apart,) = check_rule(C.ConvBiasToAdd, graph, becomes=["Add", "Conv"])
    assert check_rule(C.FoldShiftAfterConv, apart, becomes=["Conv"])[0].hash == graph.hash


FIRST = "(float[2,4,6,5] x) => (y) {{ t = {}(x, s)  y = Conv<{}>(t, w, b) }}"


@pytest.mark.parametrize("s", [weights(4, 1, 1), weights(1, 4, 1, 1), np.float32(0.3)])
@pytest.mark.parametrize(("group", "channels"), [(1, 4), (2, 2), (4, 1)])
def test_scales_and_shifts_before_a_convolution(group, channels, s):
    operands = {"w": weights(8, channels, 3, 3), "b": weights(8), "s": s}
    scaled = model(FIRST.format("Mul", f"group={group}, pads=[1,1,1,1]"), **operands)
    check_rule(C.FoldScaleBeforeConv, scaled, becomes=["Conv"], rtol=TOLERANCE)
    shifted = model(FIRST.format("Add", f"group={group}, strides=[2,2]"), **operands)
    check_rule(C.FoldShiftBeforeConv, shifted, becomes=["Conv"], rtol=TOLERANCE)


def test_conditions_before_a_convolution():
    operands = {"w": weights(8, 4, 3, 3), "b": weights(8)}
    padded = model(FIRST.format("Add", "pads=[1,1,1,1]"), **operands, s=weights(4, 1, 1))
    refuses(C.FoldShiftBeforeConv, padded, "pads its input")
    for rule, op in ((C.FoldScaleBeforeConv, "Mul"), (C.FoldShiftBeforeConv, "Add")):
        along_rows = model(FIRST.format(op, "group=1"), **operands, s=weights(6, 1))
        refuses(rule, along_rows, "more than the channels")
        text = f"(float[2,1,6,5] x) => (y) {{ t = {op}(x, s)  y = Conv(t, w, b) }}"
        refuses(rule, model(text, **operands, s=weights(4, 1, 1)), "broadcasts the input")
