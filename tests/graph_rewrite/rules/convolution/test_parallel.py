"""Parallel convolutions merge and separate, sums and concatenations move, kernels grow to those beside them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter
from graph_rewrite.rules.convolution import parallel as P
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

BRANCHES = """(float[2,4,7,6] x) => (p, q, r) {
    p = Conv<pads=[1,1,1,1]>(x, w1, b1)  q = Conv<pads=[1,1,1,1], kernel_shape=[3,3]>(x, w2)
    r = Conv<pads=[1,1,1,1], dilations=[1,1], group=1>(x, w3, b3)
}"""
FILTERS = {
    "w1": weights(5, 4, 3, 3, seed=1), "w2": weights(3, 4, 3, 3, seed=2), "w3": weights(2, 4, 3, 3, seed=3),
    "b1": weights(5, seed=4), "b3": weights(2, seed=5),
}  # fmt: skip


def test_merges_two_and_three():
    graph = model(BRANCHES, **FILTERS)
    check_rule(P.MergeTwoConvs, graph, sites=3, becomes=["Conv", "Conv", "Split"])
    check_rule(P.MergeThreeConvs, graph, becomes=["Conv", "Split"])


@pytest.mark.parametrize("count", [2, 3])
def test_separating_undoes_merging(count):
    names = [f"w{i}" for i in range(count)]
    body = "  ".join(f"y{i} = Conv<pads=[1,1,1,1]>(x, {name})" for i, name in enumerate(names))
    outputs = ", ".join(f"y{i}" for i in range(count))
    operands = {name: weights(16, 32, 3, 3, seed=i) for i, name in enumerate(names)}
    graph = model(f"(float[1,32,4,4] x) => ({outputs}) {{ {body} }}", **operands)
    merge, separate = (P.MergeTwoConvs, P.SeparateTwoConvs) if count == 2 else (P.MergeThreeConvs, P.SeparateThreeConvs)
    merged = Rewriter([merge()], "site", deployment=False).candidates(graph)[0].apply()
    assert check_rule(separate, merged)[0].hash == graph.hash


@settings(max_examples=15)
@given(data=st.data())
def test_merges_at_any_shape(data):
    def integers(low, high, count):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    rank = data.draw(st.sampled_from([1, 2, 3]))
    channels, first, second = integers(1, 3, 3)
    kernel, strides, dilations = integers(1, 2, rank), integers(1, 3, rank), integers(1, 2, rank)
    pads = integers(0, 1, 2 * rank)
    size = ",".join(str(n) for n in integers(4, 6, rank))
    attrs = f"strides={strides}, dilations={dilations}, pads={pads}"
    text = f"(float[1,{channels},{size}] x) => (y, z) {{{{ y = Conv<{attrs}>(x, v)  z = Conv<{attrs}>(x, w{{}}) }}}}"
    operands = {"v": weights(first, channels, *kernel), "w": weights(second, channels, *kernel, seed=1)}
    biased = data.draw(st.booleans())
    text, operands = (text.format(", b"), {**operands, "b": weights(second)}) if biased else (text.format(""), operands)
    (merged,) = check_rule(P.MergeTwoConvs, model(text, **operands), becomes=["Conv", "Split"])
    check_rule(P.SeparateTwoConvs, merged, becomes=["Conv", "Conv"])


def test_convolutions_that_are_not_merged():
    text = "(float[2,4,7,6] x) => (y, z) {{ y = Conv<{}>(x, v)  z = Conv<{}>(x, w) }}"
    v, w = weights(6, 4, 3, 3), weights(2, 4, 3, 3)
    for other in ("strides=[2,1]", "pads=[1,0,0,0]", "dilations=[2,2]", 'auto_pad="SAME_UPPER"'):
        refuses(P.MergeTwoConvs, model(text.format("group=1", other), v=v, w=w), "differ in kernel")
    kernels = model(text.format("group=1", "group=1"), v=v, w=weights(2, 4, 1, 1))
    refuses(P.MergeTwoConvs, kernels, "differ in kernel")
    grouped = model(text.format("group=2", "group=2"), v=weights(6, 2, 3, 3), w=weights(2, 2, 3, 3))
    refuses(P.MergeTwoConvs, grouped, "have groups")
    three = "(float[2,4,7,6] x) => (p, q, r) { p = Conv(x, v)  q = Conv(x, w)  r = Conv(x, u) }"
    refuses(P.MergeThreeConvs, model(three, v=v, w=w, u=weights(6, 4, 1, 1)), "differ in kernel")


def test_convolutions_that_are_not_separated():
    text = "(float[2,4,6,6] x) => (y, z) {{ t = Conv<group={}>(x, w)  y, z = Split<axis={}, num_outputs=2>(t) }}"
    refuses(P.SeparateTwoConvs, model(text.format(1, 2), w=weights(6, 4, 3, 3)), "not along channels")
    refuses(P.SeparateTwoConvs, model(text.format(2, 1), w=weights(6, 2, 3, 3)), "has groups")
    three = "(float[2,4,6,6] x) => (p, q, r) { t = Conv<group=2>(x, w)  p, q, r = Split<axis=1, num_outputs=3>(t) }"
    refuses(P.SeparateThreeConvs, model(three, w=weights(6, 2, 3, 3)), "has groups")


def test_separates_three():
    text = "(float[2,4,6,6] x) => (p, q, r) { t = Conv(x, w, b)  p, q, r = Split<axis=-3>(t, sizes) }"
    graph = model(text, w=weights(6, 4, 3, 3), b=weights(6), sizes=[1, 3, 2])
    check_rule(P.SeparateThreeConvs, graph, becomes=["Conv"] * 3)


TWO_KERNELS = "(float[2,4,8,9] x) => (y, z) {{ y = Conv<{}>(x, v, b)  z = Conv<{}>(x, w) }}"


@pytest.mark.parametrize(
    ("small", "kernel", "large", "goal"),
    [
        ("strides=[2,2]", (1, 1), "strides=[2,2], pads=[1,1,1,1]", (3, 3)),
        ("pads=[0,1,0,1]", (1, 3), "pads=[1,1,1,1]", (3, 3)),
        ("group=1", (1, 1), "pads=[2,2,2,2], dilations=[2,2]", (3, 3)),
        ("pads=[1,1,1,1]", (3, 3), 'auto_pad="SAME_UPPER"', (5, 5)),
        ('auto_pad="VALID"', (1, 1), "pads=[0,1,1,0]", (2, 2)),
    ],
)
def test_kernels_grow_to_those_beside_them(small, kernel, large, goal):
    graph = model(TWO_KERNELS.format(small, large), v=weights(5, 4, *kernel), w=weights(3, 4, *goal), b=weights(5))
    (grown,) = check_rule(P.EnlargeKernel, graph, becomes=["Conv", "Conv"])
    check_rule(P.MergeTwoConvs, grown, becomes=["Conv", "Split"])
    refuses(P.EnlargeKernel, grown, "larger kernel")


@pytest.mark.parametrize(
    ("small", "kernel", "large", "goal"),
    [
        ("strides=[2,2]", (1, 1), "pads=[1,1,1,1]", (3, 3)),
        ("group=1", (1, 1), "group=1", (3, 3)),
        ("pads=[1,1,1,1]", (3, 3), "pads=[2,2,2,2], dilations=[2,2]", (3, 3)),
        ("pads=[0,1,0,1]", (1, 3), "pads=[1,0,1,0]", (3, 1)),
        ("group=1", (1, 1), "pads=[1,1,1,1], dilations=[2,2]", (3, 3)),
        ("group=1", (2, 2), "pads=[1,1,1,1], dilations=[2,2]", (3, 3)),
    ],
)
def test_kernels_that_do_not_fit(small, kernel, large, goal):
    graph = model(TWO_KERNELS.format(small, large), v=weights(5, 4, *kernel), w=weights(3, 4, *goal), b=weights(5))
    refuses(P.EnlargeKernel, graph, "no convolution of this input")


def test_kernels_of_grouped_convolutions_stay():
    graph = model(
        TWO_KERNELS.format("group=2", "pads=[1,1,1,1]"), v=weights(6, 2, 1, 1), w=weights(3, 4, 3, 3), b=weights(6)
    )
    refuses(P.EnlargeKernel, graph, "has groups")


def test_the_smallest_larger_kernel_is_taken():
    graph = model(
        """(float[1,2,8,8] x) => (p, q, r) {
            p = Conv(x, w1)  q = Conv<pads=[2,2,2,2]>(x, w5)  r = Conv<pads=[1,1,1,1]>(x, w3)
        }""",
        w1=weights(2, 2, 1, 1), w3=weights(2, 2, 3, 3), w5=weights(2, 2, 5, 5),
    )  # fmt: skip
    grown = check_rule(P.EnlargeKernel, graph, sites=2)
    kernels = [sorted(g.types[n.inputs[1]].shape[2] for n in g.nodes.values()) for g in grown]
    assert kernels == [[3, 3, 5], [1, 5, 5]]


def test_concatenated_channels_and_back():
    text = (
        "(float[2,3,6,5] a, float[2,4,6,5] b) => (y) { t = Concat<axis=-3>(a, b)  y = Conv<pads=[1,1,0,0]>(t, w, c) }"
    )
    graph = model(text, w=weights(6, 7, 3, 3), c=weights(6))
    (apart,) = check_rule(P.ConvOfConcat, graph, becomes=["Conv", "Conv", "Add"])
    check_rule(P.SumOfConvs, apart, becomes=["Concat", "Conv"])


def test_three_concatenated_inputs():
    text = "(float[1,1,6] a, float[1,2,6] b, float[1,3,6] c) => (y) { t = Concat<axis=1>(a, b, c)  y = Conv(t, w) }"
    check_rule(P.ConvOfConcat, model(text, w=weights(4, 6, 3)), becomes=["Conv"] * 3 + ["Add"] * 2)


def test_concatenations_that_stay():
    text = "(float[2,4,3,5] a, float[2,4,3,5] b) => (y) {{ t = Concat<axis={}>(a, b)  y = Conv<group={}>(t, w) }}"
    refuses(P.ConvOfConcat, model(text.format(2, 1), w=weights(6, 4, 3, 3)), "not along channels")
    refuses(P.ConvOfConcat, model(text.format(1, 2), w=weights(6, 4, 3, 3)), "has groups")


SUM = "(float[2,4,6,5] x, float[{}] y) => (z) {{ s = Conv<{}>(x, v, a)  t = Conv<{}>(y, w, b)  z = Add(s, t) }}"
BIASES = {"a": weights(6, seed=1), "b": weights(6, seed=2)}


def test_sums_of_convolutions():
    attrs = "strides=[2,1], pads=[1,1,1,1]"
    graph = model(SUM.format("2,3,6,5", attrs, attrs), v=weights(6, 4, 3, 3), w=weights(6, 3, 3, 3), **BIASES)
    check_rule(P.SumOfConvs, graph, becomes=["Concat", "Conv"], rtol=1e-6)


def test_sums_of_convolutions_that_stay():
    v, w = weights(6, 4, 1, 1), weights(6, 4, 1, 1, seed=1)
    plain = "group=1"
    strided = model(SUM.format("2,4,12,10", plain, "strides=[2,2]"), v=v, w=w, **BIASES)
    refuses(P.SumOfConvs, strided, "more than their channels")
    padded = model(SUM.format("2,4,6,5", plain, "pads=[1,1,1,1]"), v=v, w=weights(6, 4, 3, 3), **BIASES)
    refuses(P.SumOfConvs, padded, "differ in kernel")
    batch = model(SUM.format("1,4,6,5", plain, plain), v=v, w=w, **BIASES)
    refuses(P.SumOfConvs, batch, "more than their channels")
    grouped = model(SUM.format("2,4,6,5", "group=2", "group=2"), v=weights(6, 2, 1, 1), w=weights(6, 2, 1, 1), **BIASES)
    refuses(P.SumOfConvs, grouped, "have groups")
    same = "(float[2,4,6,5] x) => (z) { s = Conv(x, v)  t = Conv(x, w)  z = Add(s, t) }"
    refuses(P.SumOfConvs, model(same, v=v, w=w), "constant or the same")


ONE_INPUT = "(float[2,4,6,5] x) => (z) {{ s = Conv<{}>(x, v, a)  t = Conv<{}>(x, w)  z = Add(s, t) }}"


def test_sum_of_convolutions_of_one_input():
    text = ONE_INPUT.format("group=2, pads=[1,1,1,1]", 'group=2, auto_pad="SAME_UPPER"')
    graph = model(text, v=weights(6, 2, 3, 3), w=weights(6, 2, 3, 3, seed=1), a=weights(6))
    check_rule(P.SumOfConvsOfOneInput, graph, becomes=["Conv"], rtol=1e-6)
    unequal = model(ONE_INPUT.format("group=1", "group=1"), v=weights(6, 4, 1, 1), w=weights(1, 4, 1, 1), a=weights(6))
    refuses(P.SumOfConvsOfOneInput, unequal, "differ in filters")
