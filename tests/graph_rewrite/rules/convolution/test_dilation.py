"""Dilated and strided convolutions as plain ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.convolution import dilation as D
from tests.graph_rewrite.rules.checking import check_rule, model, ops, random_feeds, refuses, weights

CONV = "(float[2,3,{}] x) => (y) {{ y = Conv<{}>(x, w, b) }}"


def conv(size, attrs, kernel=(3, 3)):
    return model(CONV.format(size, attrs), w=weights(4, 3, *kernel), b=weights(4))


def test_aligned_dilation_needs_no_padding():
    plain = ["Conv", "Reshape", "Reshape", "Reshape", "Reshape", "Transpose", "Transpose"]
    graph = conv("8,6", "pads=[2,2,2,2], dilations=[2,2]")
    (after,) = check_rule(D.DilatedConvAsBatch, graph, becomes=plain)
    (node,) = [node for node in after.nodes.values() if node.op == "Conv"]
    assert (node.attrs["pads"], node.attrs["dilations"]) == ((1, 1, 1, 1), (1, 1))


@settings(max_examples=20)
@given(data=st.data())
def test_dilations_at_any_size(data):
    def draw(low, high, count=2):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    kernel, (height, width) = draw(2, 3), draw(7, 9)
    attrs = f"pads={draw(0, 3, 4)}, dilations={[*draw(2, 3, 1), *draw(1, 3, 1)]}"
    check_rule(D.DilatedConvAsBatch, conv(f"{height},{width}", attrs, kernel))


@settings(max_examples=25)
@given(data=st.data())
def test_strides_at_any_size(data):
    def draw(low, high, count=2):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    stride, kernel, (height, width) = data.draw(st.integers(2, 3)), [*draw(2, 7, 1), *draw(1, 4, 1)], draw(7, 10)
    attrs = f"pads={draw(0, 3, 4)}, strides={[stride] * 2}"
    check_rule(D.StridedConvAsDepth, conv(f"{height},{width}", attrs, kernel))


def test_conversions_between_two_layers_cancel():
    attrs = "pads=[2,2,2,2], dilations=[2,2]"
    text = f"(float[1,3,6,8] x) => (y) {{ a = Conv<{attrs}>(x, v)  r = Relu(a)  c = Conv<{attrs}>(r, w)  y = Relu(c) }}"
    before = model(text, v=weights(4, 3, 3, 3), w=weights(4, 4, 3, 3))
    graph = before
    for rule in (D.DilatedConvReluAsBatch, D.BatchOfSpace):
        rewriter = Rewriter([rule()], granularity="site", deployment=False)
        while candidates := rewriter.candidates(graph):
            graph = candidates[0].apply()
    assert ops(graph) == sorted([*["Conv", "Relu"] * 2, *["Reshape"] * 4, *["Transpose"] * 2])
    feeds = random_feeds(before)
    (expected,), (found,) = run_graph(before, feeds), run_graph(graph, feeds)
    assert abs(found - expected).max() <= 1e-12 * abs(expected).max()


def test_conversions_with_other_steps_stay():
    text = (
        "(float[4,3,2,3] x) => (y) { r = Relu(x)  a = Reshape(r, s)  b = Transpose<perm=[2,3,4,0,5,1]>(a)"
        "  c = Reshape(b, t)  d = Reshape(c, u)  e = Transpose<perm=[P]>(d)  f = Reshape(e, v)  y = Neg(f) }"
    )
    shapes = {"s": [2, 2, 1, 3, 2, 3], "t": [1, 3, 4, 6]}
    other = model(text.replace("P", "3,5,0,1,2,4"), **shapes, u=[1, 3, 1, 4, 3, 2], v=[8, 3, 1, 3])
    refuses(D.BatchOfSpace, other, "different steps")
    turned = model(text.replace("P", "5,3,0,1,2,4"), **shapes, u=[1, 3, 2, 2, 3, 2], v=[4, 3, 2, 3])
    refuses(D.BatchOfSpace, turned, "not those between batch and space")
    flat = model(text.replace("P", "1,0").replace("Transpose<perm=[2,3,4,0,5,1]>", "Transpose<perm=[1,0]>"),
                 s=[8, 9], t=[9, 8], u=[8, 9], v=[9, 8])  # fmt: skip
    refuses(D.BatchOfSpace, flat, "remainders")


@pytest.mark.parametrize(
    ("rule", "attrs", "kernel", "reason"),
    [
        (D.DilatedConvAsBatch, "pads=[1,1,1,1]", (3, 3), "no dilations"),
        (D.DilatedConvAsBatch, "dilations=[2,2]", (1, 1), "no dilations"),
        (D.DilatedConvAsBatch, "dilations=[2,2], strides=[2,2]", (3, 3), "strides"),
        (D.StridedConvAsDepth, "pads=[1,1,1,1]", (3, 3), "strides are 1"),
        (D.StridedConvAsDepth, "strides=[2,1]", (3, 3), "strides are 1 or differ"),
        (D.StridedConvAsDepth, "strides=[2,2], dilations=[2,2]", (3, 3), "dilations"),
        (D.StridedConvAsDepth, "strides=[2,2]", (1, 1), "one remainder only"),
    ],
)
def test_refusals(rule, attrs, kernel, reason):
    refuses(rule, conv("9,9", attrs, kernel), reason)


@pytest.mark.parametrize("rule", [D.DilatedConvAsBatch, D.StridedConvAsDepth])
def test_only_images(rule):
    graph = model("(float[1,3,9] x) => (y) { y = Conv<dilations=[2], strides=[1]>(x, w) }", w=weights(4, 3, 3))
    refuses(rule, graph, "two-dimensional")


def test_a_relu_belongs_to_the_batch():
    graph = model("(float[1,3,9,9] x) => (y) { t = Conv<dilations=[2,2]>(x, w) y = Relu(t) }", w=weights(4, 3, 3, 3))
    refuses(D.DilatedConvAsBatch, graph, "a Relu follows")
    check_rule(D.DilatedConvReluAsBatch, graph)
