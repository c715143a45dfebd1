"""Channels padded to blocks, and the Slice that removes them moved on until a convolution takes it in."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.layout import channel_padding as P
from graph_rewrite.rules.layout import channel_padding_concat as C
from graph_rewrite.rules.layout.pool_padding import PadIntoPool
from tests.graph_rewrite.rules.checking import check_rule, model, ops, random_feeds, refuses, weights

SLICE = {"s": [0], "e": [5], "a": [1]}


@pytest.mark.parametrize("bias", ["", ", b"])
@pytest.mark.parametrize("filters", [8, 15, 17, 24])
def test_filters_are_padded_to_blocks(filters, bias):
    given = {"w": weights(filters, 3, 2, 2)} | ({"b": weights(filters)} if bias else {})
    graph = model(f"(float[2,3,5,4] x) => (y) {{ y = Conv<pads=[0,1,1,0]>(x, w{bias}) }}", **given)
    (after,) = check_rule(P.PadConvChannels, graph, becomes=["Conv", "Slice"])
    (conv,) = [node for node in after.nodes.values() if node.op == "Conv"]
    assert after.types[conv.outputs[0]].shape[1] % 16 == 0


@pytest.mark.parametrize(("filters", "reason"), [(16, "fill blocks"), (7, "more than double")])
def test_filters_that_stay(filters, reason):
    graph = model("(float[2,3,5,4] x) => (y) { y = Conv(x, w) }", w=weights(filters, 3, 2, 2))
    refuses(P.PadConvChannels, graph, reason)
    grouped = model("(float[2,4,5,4] x) => (y) { y = Conv<group=2>(x, w) }", w=weights(10, 2, 2, 2))
    refuses(P.PadConvChannels, grouped, "groups")


def norm():
    return {name: np.abs(weights(5, seed=i)) + 0.1 for i, name in enumerate(("g", "h", "mean", "var"))}


MOVED = [
    (P.ChannelSliceAfterUnary, "y = Sigmoid(t)", {}, ["Sigmoid", "Slice"]),
    (P.ChannelSliceAfterPool, "y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(t)", {}, ["MaxPool", "Slice"]),
    (P.ChannelSliceAfterPool, "y = GlobalAveragePool(t)", {}, ["GlobalAveragePool", "Slice"]),
    (P.ChannelSliceAfterBatchNorm, "y = BatchNormalization(t, g, h, mean, var)", norm(),
     ["BatchNormalization", "Slice"]),
    (P.ConvOfChannelSlice, "y = Conv(t, w, b)", {"w": weights(3, 5, 2, 2), "b": weights(3)}, ["Conv"]),
    (P.DepthwiseConvOfChannelSlice, "y = Conv<group=5>(t, w, b)", {"w": weights(5, 1, 2, 2), "b": weights(5)},
     ["Conv", "Slice"]),
    (C.ConvOfConcatOfChannelSlices, "u = Concat<axis=1>(x, t)  y = Conv(u, w)", {"w": weights(3, 12, 2, 2)},
     ["Concat", "Conv"]),
    (C.FunctionOfConcatOfChannelSlices, "u = Concat<axis=1>(x, t)  y = Relu(u)", {},
     ["Concat", "Relu", "Slice"]),
    (C.FunctionOfConcatOfChannelSlices,
     "u = Concat<axis=1>(t, x)  y = AveragePool<kernel_shape=[2,2], pads=[1,0,0,1]>(u)", {},
     ["AveragePool", "Concat", "Slice"]),
    (C.DepthwiseConvOfConcatOfChannelSlices, "u = Concat<axis=1>(x, t)  y = Conv<group=12, strides=[2,1]>(u, w, b)",
     {"w": weights(12, 1, 2, 2), "b": weights(12)}, ["Concat", "Conv", "Conv", "Slice"]),
]  # fmt: skip


def sliced(text, starts=0, axis=1, **given):
    bounds = {"s": [starts], "e": [5 + starts], "a": [axis]}
    return model(f"(float[2,7,7,6] x) => (y) {{ t = Slice(x, s, e, a)  {text} }}", **bounds, **given)


@pytest.mark.parametrize(("rule", "text", "given", "becomes"), MOVED)
def test_the_slice_moves_past(rule, text, given, becomes):
    check_rule(rule, sliced(text, **given), becomes=becomes, rtol=1e-6)


@pytest.mark.parametrize(("rule", "text", "given", "becomes"), MOVED)
def test_a_slice_of_further_channels_stays(rule, text, given, becomes):
    words = "first channels"
    refuses(rule, sliced(text, starts=1, **given), words)


def test_a_slice_of_rows_stays():
    refuses(P.ChannelSliceAfterPool, sliced("y = GlobalMaxPool(t)", axis=2), "first channels")


@pytest.mark.parametrize("f", sorted(P.SAFE_BINARY))
def test_slices_of_two_operands(f):
    inputs = "(float[2,7,3,2] x, float[2,7,3,2] z) => (y)"
    text = f"{{ t = Slice(x, s, e, a)  u = Slice(z, s, e, a)  y = {f}(t, u) }}"
    check_rule(P.ChannelSlicesAfterBinary, model(f"{inputs} {text}", **SLICE), becomes=[f, "Slice"])
    narrow = "(float[2,7,3,2] x, float[2,7,1,2] z) => (y)"
    refuses(P.ChannelSlicesAfterBinary, model(f"{narrow} {text}", **SLICE), "differ in shape")
    further = {"s": [1], "e": [6], "a": [1]}
    refuses(P.ChannelSlicesAfterBinary, model(f"{inputs} {text}", **further), "first channels")


@pytest.mark.parametrize("rule", [P.ConvOfChannelSlice, C.ConvOfConcatOfChannelSlices])
def test_groups_are_refused(rule):
    text = "u = Concat<axis=1>(t, x)  " if rule is C.ConvOfConcatOfChannelSlices else "u = Identity(t)  "
    text = text if "Concat" in text else ""
    name, channels = ("u", 12) if text else ("t", 5)
    grouped = sliced(f"{text}y = Conv<group={channels}>({name}, w)", w=weights(channels, 1, 2, 2))
    refuses(rule, grouped, "groups")
    if not text:
        refuses(P.DepthwiseConvOfChannelSlice, sliced("y = Conv(t, w)", w=weights(5, 5, 2, 2)), "one filter for every")


def test_a_join_that_is_not_of_channels_stays():
    text = "u = Concat<axis=2>(x, t)  y = Relu(u)"
    graph = model(f"(float[2,5,7,6] x, float[2,7,7,6] z) => (y) {{ t = Slice(z, s, e, a)  {text} }}", **SLICE)
    assert not Rewriter([C.FunctionOfConcatOfChannelSlices()], "site", deployment=False).candidates(graph)
    dense = sliced("u = Concat<axis=1>(x, t)  y = Conv<group=2>(u, w)", w=weights(4, 6, 2, 2))
    refuses(C.DepthwiseConvOfConcatOfChannelSlices, dense, "one filter for every channel")


def test_padding_is_carried_through_joined_channels():
    """Branches of 24 channels joined, an activation, a depthwise convolution: no Slice is left."""
    text = (
        "a = Conv(x, v)  b = Conv(x, v2)  j = Concat<axis=1>(a, x, b)  r = Relu(j)"
        "  d = Conv<group=55, strides=[2,2]>(r, u)  y = Conv(d, w)"
    )
    given = {"v": weights(24, 7, 1, 1), "v2": weights(24, 7, 1, 1, seed=1), "u": weights(55, 1, 2, 2)}
    before = graph = model(f"(float[1,7,6,5] x) => (y) {{ {text} }}", w=weights(32, 55, 1, 1), **given)
    padding = Rewriter([P.PadConvChannels()], granularity="class", deployment=False)
    graph = padding.candidates(graph)[0].apply()
    rules = [rule() for rule in (*P.RULES, *C.RULES) if rule.__name__ in P.PadConvChannels.carried_by]
    rewriter = Rewriter(rules, granularity="site", deployment=False)
    while candidates := rewriter.candidates(graph):
        graph = candidates[0].apply()
    assert "Slice" not in ops(graph)
    feeds = random_feeds(before)
    (expected,), (found,) = run_graph(before, feeds), run_graph(graph, feeds)
    assert abs(found - expected).max() <= 1e-12 * abs(expected).max()


def test_the_padding_disappears_in_the_next_convolution():
    text = (
        "a = Conv(x, v)  r = Relu(a)  p = AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>(r)"
        "  d = Conv<group=24, pads=[1,1,1,1]>(r, u)  s = Add(p, d)  y = Conv(s, w)"
    )
    given = {"v": weights(24, 7, 1, 1), "u": weights(24, 1, 3, 3), "w": weights(32, 24, 1, 1)}
    before = graph = model(f"(float[1,7,6,5] x) => (y) {{ {text} }}", **given)
    graph = Rewriter([P.PadConvChannels()], granularity="site", deployment=False).candidates(graph)[0].apply()
    rules = [rule() for rule in (*P.RULES, *C.RULES) if rule is not P.PadConvChannels]
    rewriter = Rewriter(rules, granularity="site", deployment=False)
    while candidates := rewriter.candidates(graph):
        graph = candidates[0].apply()
    assert ops(graph) == ops(before)
    feeds = random_feeds(before)
    (expected,), (found,) = run_graph(before, feeds), run_graph(graph, feeds)
    assert abs(found - expected).max() <= 1e-12 * abs(expected).max()


POOL = "(float[1,3,6,5] x) => (y) {{ p = Pad(x, q{})  y = AveragePool<kernel_shape=[3,3]{}>(p) }}"
AROUND = {"q": [0, 0, 1, 0, 0, 0, 2, 1]}


@pytest.mark.parametrize("attrs", ["", ", strides=[2,1]", ", count_include_pad=1"])
def test_padding_goes_into_the_pool(attrs):
    check_rule(PadIntoPool, model(POOL.format("", attrs), **AROUND), becomes=["AveragePool"])


@pytest.mark.parametrize(
    ("value", "attrs", "given", "reason"),
    [
        (", c", "", {**AROUND, "c": np.float32(1)}, "not zero"),
        ("", "", {"q": [0, 1, 1, 0, 0, 0, 1, 1]}, "spatial axes alone"),
        ("", "", {"q": [0, 0, -1, 0, 0, 0, 1, 1]}, "negative"),
        ("", ", pads=[1,1,1,1]", AROUND, "pads or rounds up itself"),
        ("", ", ceil_mode=1", AROUND, "pads or rounds up itself"),
        ("", ", dilations=[2,2]", AROUND, "dilations"),
        ("", "", {"q": [0, 0, 3, 0, 0, 0, 0, 0]}, "as large as the window"),
    ],
)
def test_padding_that_stays(value, attrs, given, reason):
    refuses(PadIntoPool, model(POOL.format(value, attrs), **given), reason)
