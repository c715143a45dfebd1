"""Convolutions absorb padding, other convolutions, residual connections; strides become slices."""

import numpy as np
import pytest

from graph_rewrite.rules.convolution import chain as C
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

TOLERANCE = 1e-6  # filters are multiplied in float32

PAD = "(float[2,4,6,5] x) => (y) {{ t = Pad<{}>(x, pads{})  y = Conv<{}>(t, w) }}"


@pytest.mark.parametrize("attrs", ["pads=[1,0,1,2]", 'auto_pad="SAME_UPPER", strides=[2,2]', "dilations=[2,1]"])
def test_padding_goes_into_the_convolution(attrs):
    w = weights(6, 4, 3, 3)
    whole = model(PAD.format('mode="constant"', "", attrs), w=w, pads=[0, 0, 1, 2, 0, 0, 3, 0])
    check_rule(C.FoldPadIntoConv, whole, becomes=["Conv"])
    named = model(
        PAD.format('mode="constant"', ", value, axes", attrs), w=w, pads=[1, 2, 0, 3], axes=[-1, 2], value=np.float32(0)
    )
    check_rule(C.FoldPadIntoConv, named, becomes=["Conv"])


def test_other_padding_stays():
    w, spatial = weights(6, 4, 3, 3), [0, 0, 1, 1, 0, 0, 1, 1]
    ones = model(PAD.format('mode="constant"', ", value", "group=1"), w=w, pads=spatial, value=np.float32(1))
    refuses(C.FoldPadIntoConv, ones, "not zero")
    channels = model(PAD.format('mode="constant"', "", "group=1"), w=weights(6, 5, 3, 3), pads=[0, 1, 1, 1, 0, 0, 1, 1])
    refuses(C.FoldPadIntoConv, channels, "channels are padded")
    cropped = model(PAD.format('mode="constant"', "", "group=1"), w=w, pads=[0, 0, -1, 1, 0, 0, 1, 1])
    refuses(C.FoldPadIntoConv, cropped, "negative")


CHAIN = "(float[2,4,7,6] x) => (y) {{ t = Conv<{}>(x, v{})  y = Conv<{}>(t, w, b) }}"


@pytest.mark.parametrize("bias", ["", ", a"])
@pytest.mark.parametrize(
    "inner", ["pads=[1,1,1,1]", "strides=[2,1], dilations=[1,2]", 'auto_pad="SAME_UPPER", strides=[2,2]']
)
@pytest.mark.parametrize("outer", ["group=1", "strides=[2,2]"])
def test_pointwise_after_a_convolution(inner, outer, bias):
    operands = {"v": weights(5, 4, 3, 3), "w": weights(3, 5, 1, 1, seed=1), "b": weights(3)}
    graph = model(CHAIN.format(inner, bias, outer), **operands, **({"a": weights(5)} if bias else {}))
    check_rule(C.ComposeConvThenPointwise, graph, becomes=["Conv"], rtol=TOLERANCE)


def test_pointwise_before_a_convolution():
    operands = {"v": weights(5, 4, 1, 1), "w": weights(3, 5, 3, 2, seed=1), "b": weights(3)}
    biased = model(CHAIN.format("group=1", ", a", "strides=[2,1], dilations=[2,1]"), **operands, a=weights(5))
    check_rule(C.ComposePointwiseThenConv, biased, becomes=["Conv"], rtol=TOLERANCE)
    padded = model(CHAIN.format("group=1", "", "pads=[1,1,1,0]"), **operands)
    check_rule(C.ComposePointwiseThenConv, padded, becomes=["Conv"], rtol=TOLERANCE)
    both = model(CHAIN.format("group=1", ", a", "pads=[1,1,1,0]"), **operands, a=weights(5))
    refuses(C.ComposePointwiseThenConv, both, "pads with zeros")


def test_chains_that_stay():
    b = weights(16)
    bottleneck = model(CHAIN.format("group=1", "", "group=1"), v=weights(1, 4, 1, 1), w=weights(16, 1, 1, 1), b=b)
    refuses(C.ComposeConvThenPointwise, bottleneck, "64 elements, those of the factors 20")
    refuses(C.ComposePointwiseThenConv, bottleneck, "64 elements, those of the factors 20")
    grouped = model(CHAIN.format("group=2", "", "group=1"), v=weights(4, 2, 1, 1), w=weights(16, 4, 1, 1), b=b)
    refuses(C.ComposeConvThenPointwise, grouped, "groups")
    refuses(C.ComposePointwiseThenConv, grouped, "groups")
    wide = model(CHAIN.format("strides=[2,2]", "", "group=1"), v=weights(4, 4, 1, 1), w=weights(16, 4, 3, 3), b=b)
    refuses(C.ComposeConvThenPointwise, wide, "not pointwise")
    refuses(C.ComposePointwiseThenConv, wide, "not pointwise")


RESIDUAL = "(float[2,4,6,5] x) => (y) {{ t = Conv<{}>(x, w)  y = Add(x, t) }}"


@pytest.mark.parametrize(
    ("attrs", "shape"),
    [("group=1", (4, 4, 1, 1)), ("pads=[1,1,1,1]", (4, 4, 3, 3)), ("pads=[2,0,2,1], dilations=[2,1]", (4, 4, 3, 2)),
     ("pads=[1,1,1,1], group=2", (4, 2, 3, 3)), ('auto_pad="SAME_LOWER", group=4', (4, 1, 2, 3))],
)  # fmt: skip
def test_residual_connection_goes_into_the_filters(attrs, shape):
    graph = model(RESIDUAL.format(attrs), w=weights(*shape))
    check_rule(C.FoldResidualIntoConv, graph, becomes=["Conv"], rtol=TOLERANCE)


def test_residual_connections_that_stay():
    broadcast = model(RESIDUAL.format("group=1"), w=weights(1, 4, 1, 1))
    refuses(C.FoldResidualIntoConv, broadcast, "does not keep the shape")
    between = model(RESIDUAL.format("pads=[1,0,1,0], dilations=[2,1]"), w=weights(4, 4, 2, 1))
    refuses(C.FoldResidualIntoConv, between, "no tap")


@pytest.mark.parametrize(("attrs", "channels"), [("strides=[2,3]", 4), ("strides=[1,2], group=2", 2)])
def test_stride_of_a_pointwise_convolution_as_slice_and_back(attrs, channels):
    text = f"(float[2,4,7,6] x) => (y) {{ y = Conv<{attrs}>(x, w, b) }}"
    graph = model(text, w=weights(6, channels, 1, 1), b=weights(6))
    (sliced,) = check_rule(C.StridedPointwiseConvToSlice, graph, becomes=["Conv", "Slice"])
    check_rule(C.SliceToStridedPointwiseConv, sliced, becomes=["Conv"])


def test_strides_that_stay():
    text = "(float[2,4,7,6] x) => (y) {{ y = Conv<{}>(x, w) }}"
    refuses(C.StridedPointwiseConvToSlice, model(text.format("group=1"), w=weights(6, 4, 1, 1)), "with a stride")
    refuses(C.StridedPointwiseConvToSlice, model(text.format("strides=[2,2]"), w=weights(6, 4, 3, 3)), "with a stride")
    padded = model(text.format("strides=[2,2], pads=[1,1,1,1]"), w=weights(6, 4, 1, 1))
    refuses(C.StridedPointwiseConvToSlice, padded, "with a stride")


SLICE = "(float[2,4,7,6] x) => (y) {{ t = Slice(x, starts, ends, axes, steps)  y = Conv<{}>(t, w) }}"


def test_other_slices_stay():
    w, big = weights(6, 4, 1, 1), 1 << 40
    regular = model(SLICE.format("group=1"), w=w, starts=[0], ends=[big], axes=[-1], steps=[2])
    check_rule(C.SliceToStridedPointwiseConv, regular, becomes=["Conv"])
    later = model(SLICE.format("group=1"), w=w, starts=[1], ends=[big], axes=[2], steps=[2])
    refuses(C.SliceToStridedPointwiseConv, later, "more than take")
    shorter = model(SLICE.format("group=1"), w=w, starts=[0], ends=[4], axes=[2], steps=[2])
    refuses(C.SliceToStridedPointwiseConv, shorter, "more than take")
    batch = model(SLICE.format("group=1"), w=w, starts=[0], ends=[big], axes=[0], steps=[2])
    refuses(C.SliceToStridedPointwiseConv, batch, "more than take")
    strided = model(SLICE.format("strides=[2,2]"), w=w, starts=[0], ends=[big], axes=[2], steps=[2])
    refuses(C.SliceToStridedPointwiseConv, strided, "not pointwise")
