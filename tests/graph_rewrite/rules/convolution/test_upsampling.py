"""Convolutions that make images larger: of repeated or interpolated elements, and transposed ones."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from graph_rewrite.rules.convolution import upsampling as U
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

FLOOR = 'mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"'
HALF = 'mode="nearest"'
LINEAR = 'mode="linear"'


def resized(attrs, times=(2, 2), conv="pads=[1,1,1,1]", taps=(3, 3), size=(5, 4), by="scales", **other):
    """Return a graph of a convolution of an image that becomes so many times as large."""
    large = [number * count for number, count in zip(size, times, strict=True)]
    given = {"s": np.array([1, 1, *times], np.float32)} if by == "scales" else {"s": np.array([2, 3, *large])}
    at = ", , s" if by == "scales" else ", , , s"
    image = ",".join(map(str, (2, 3, *size)))
    text = f"(float[{image}] x) => (y) {{ t = Resize<{attrs}>(x{at})  y = Conv<{conv}>(t, w, b) }}"
    return model(text, **{**given, "w": weights(4, 3, *taps), "b": weights(4), **other})


@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize("attrs", [FLOOR, HALF, 'mode="nearest", nearest_mode="round_prefer_ceil"'])
def test_a_convolution_of_repeated_elements_is_a_transposed_one(attrs, by):
    (after,) = check_rule(U.RepeatedConvAsConvTranspose, resized(attrs, by=by), becomes=["ConvTranspose"], rtol=1e-6)
    (node,) = after.nodes.values()
    assert (node.attrs["strides"], node.attrs["pads"], node.attrs["kernel_shape"]) == ((2, 2), (1,) * 4, (4, 4))


@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_repeated_elements_at_any_size(data):
    def draw(low, high, count=2):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    times, taps, size = draw(1, 4), draw(1, 5), draw(1, 4)
    pads = [data.draw(st.integers(0, count - 1)) for count in taps * 2]
    assume(all(n * s + pads[i] + pads[i + 2] >= taps[i] for i, (n, s) in enumerate(zip(times, size, strict=True))))
    check_rule(U.RepeatedConvAsConvTranspose, resized(FLOOR, times, f"pads={pads}", taps, size), rtol=1e-6)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (resized(LINEAR), "interpolated"),
        (resized(FLOOR, conv="pads=[3,1,1,1]"), "nothing but padding"),
        (resized(FLOOR, conv="strides=[2,1]"), "strides"),
        (resized(FLOOR, s=np.array([1, 1, 2, 2.2], np.float32)), "no whole numbers"),
        (resized(FLOOR, s=np.array([1, 1, 2, 1.5], np.float32), size=(5, 5)), "whole number of times"),
        (resized(FLOOR.replace("floor", "ceil")), "repeated equally often"),
        (resized(FLOOR.replace("floor", "round_prefer_floor"), (3, 3)), "repeated equally often"),
        (resized('mode="nearest", coordinate_transformation_mode="align_corners"'), "repeated equally often"),
        (resized(FLOOR, by="sizes", size=(0, 4), s=np.array([2, 3, 4, 8])), "whole number of times"),
    ],
)
def test_other_images_are_convolved_as_they_are(graph, reason):
    refuses(U.RepeatedConvAsConvTranspose, graph, reason)


def transposed(attrs, taps=(3, 3), size=(4, 5), relu=False, filters=4, groups=1):
    image = ",".join(map(str, (2, 3 * groups, *size)))
    text = f"t = ConvTranspose<{attrs}>(x, w, b)  y = {'Relu' if relu else 'Neg'}(t)"
    given = {"w": weights(3 * groups, filters // groups, *taps), "b": weights(filters)}
    return model(f"(float[{image}] x) => (y) {{ {text} }}", **given)


def test_filters_as_large_as_the_strides_need_no_border():
    expected = ["Conv", "DepthToSpace", "Neg"]
    (after,) = check_rule(U.ConvTransposeAsConv, transposed("strides=[2,2]", (2, 2)), becomes=expected)
    (conv,) = (node for node in after.nodes.values() if node.op == "Conv")
    assert conv.attrs["kernel_shape"] == (1, 1)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_transposed_convolutions_at_any_size(data):
    def draw(low, high, count=2):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    stride, taps, size = data.draw(st.integers(1, 3)), draw(1, 5), draw(1, 4)
    pads = [data.draw(st.integers(0, count - 1)) for count in taps * 2]
    more = draw(0, stride - 1)
    counts = [stride * (n - 1) + more[i] + taps[i] - pads[i] - pads[i + 2] for i, n in enumerate(size)]
    assume(min(counts) > 0)
    attrs = f"strides={[stride] * 2}, pads={pads}, output_padding={more}"
    check_rule(U.ConvTransposeAsConv, transposed(attrs, taps, size))


def test_a_relu_belongs_to_the_convolution():
    graph = transposed("strides=[2,2], pads=[1,1,1,1]", (4, 4), relu=True)
    refuses(U.ConvTransposeAsConv, graph, "a Relu follows")
    (after,) = check_rule(U.ConvTransposeReluAsConv, graph, becomes=["Conv", "DepthToSpace", "Relu", "Slice"])
    assert [node.op for node in after.order()] == ["Conv", "Relu", "DepthToSpace", "Slice"]


@pytest.mark.parametrize(
    ("attrs", "reason", "others"),
    [
        ("strides=[2,1]", "differ", {}),
        ("dilations=[2,1]", "dilations", {}),
        ("group=2", "groups", {"groups": 2}),
        ("strides=[2,2], pads=[3,0,0,0]", "more is cut off", {}),
        ('strides=[2,2], auto_pad="SAME_UPPER"', "decides on the padding", {}),
        ("strides=[2,2], output_shape=[8,10]", "decides on the padding", {}),
    ],
)
def test_transposed_convolutions_that_stay(attrs, reason, others):
    refuses(U.ConvTransposeAsConv, transposed(attrs, **others), reason)


def test_a_layer_of_a_decoder_becomes_a_plain_convolution_of_the_small_image():
    """Half of a filter's taps see the same element: 16 products per element of the small image in place of 36."""
    graph = resized(FLOOR)
    for rule, rtol in ((U.RepeatedConvAsConvTranspose, 1e-6), (U.ConvTransposeAsConv, 1e-6)):
        (graph,) = check_rule(rule, graph, rtol=rtol)
    assert ops(graph) == ["Conv", "DepthToSpace", "Slice"]
    (conv,) = (node for node in graph.nodes.values() if node.op == "Conv")
    assert conv.attrs["kernel_shape"] == (2, 2)


@pytest.mark.parametrize("by", ["scales", "sizes"])
@pytest.mark.parametrize(
    "attrs", [FLOOR, HALF, LINEAR, 'mode="linear", coordinate_transformation_mode="align_corners"']
)
def test_resizing_and_a_pointwise_convolution_commute(attrs, by):
    before = resized(attrs, (2, 3), "pads=[0,0,0,0]", (1, 1), by=by)
    (after,) = check_rule(U.PointwiseConvBeforeResize, before, becomes=["Conv", "Resize"], rtol=1e-6)
    assert [node.op for node in after.order()] == ["Conv", "Resize"]
    (back,) = check_rule(U.PointwiseConvAfterResize, after, becomes=["Conv", "Resize"], rtol=1e-6)
    assert back.hash == before.hash


@pytest.mark.parametrize(
    ("attrs", "others", "reason"),
    [
        ('mode="cubic"', {"taps": (1, 1), "conv": "pads=[0,0,0,0]"}, "need not add up"),
        (LINEAR, {}, "more than one position"),
        (LINEAR, {"taps": (1, 1), "conv": "strides=[2,2]"}, "skips some"),
        (
            FLOOR,
            {
                "taps": (1, 1),
                "conv": "pads=[0,0,0,0]",
                "s": np.array([1, 2, 2, 2], np.float32),
                "w": weights(4, 6, 1, 1),
            },
            "chan",
        ),
    ],
)
def test_images_that_are_resized_first(attrs, others, reason):
    graph = resized(attrs, **{"conv": "pads=[1,1,1,1]", **others})
    refuses(U.PointwiseConvBeforeResize, graph, reason)
