"""Pools of one element per window as strides of a convolution."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.rules.convolution import absorption as C
from graph_rewrite.rules.convolution import subsampling as S
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_a_pool_of_one_element_becomes_the_stride_of_a_convolution(data):
    """Any size, strides and padding: what lay in the padding behind the pool still reads zeros."""

    def pair(low, high):
        return data.draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    size, inner, outer, before, after = pair(1, 7), pair(1, 3), pair(1, 2), pair(0, 2), pair(0, 2)
    pool = data.draw(st.sampled_from(["AveragePool", "MaxPool"]))
    text = f"""t = {pool}<kernel_shape=[1,1], strides={list(inner)}>(x)
        y = Conv<strides={list(outer)}, pads={[*before, *after]}>(t, w, b)"""
    image = ",".join(map(str, size))
    graph = model(f"(float[2,3,{image}] x) => (y) {{ {text} }}", w=weights(4, 3, 1, 1), b=weights(4))
    check_rule(S.ConvOfSubsampling, graph, becomes=["Conv"])


@pytest.mark.parametrize(
    ("pool", "kernel", "reason"),
    [
        ("kernel_shape=[2,1]", 1, "more than one element"),
        ("kernel_shape=[1,1], pads=[1,0,0,0], strides=[2,2], count_include_pad=1", 1, "sees padding"),
        ("kernel_shape=[1,1], strides=[2,2], ceil_mode=1", 1, "rounded up"),
        ("kernel_shape=[1,1], strides=[2,2]", 2, "more than one tap"),
    ],
)
def test_pools_that_are_no_strides(pool, kernel, reason):
    text = f"t = AveragePool<{pool}>(x)  y = Conv(t, w)"
    graph = model(f"(float[1,3,6,5] x) => (y) {{ {text} }}", w=weights(4, 3, kernel, kernel))
    refuses(S.ConvOfSubsampling, graph, reason)


def test_a_pool_of_a_slice_is_left_to_the_rule_that_takes_both():
    text = "(float[1,4,6,6] x) => (y) { s = Slice(x, one, end, two) p = MaxPool<kernel_shape=[1,1], strides=[2,2]>(s) "
    graph = model(text + "y = Conv(p, w) }", one=[1], end=[9], two=[2], w=weights(3, 4, 1, 1))
    refuses(S.ConvOfSubsampling, graph, "what is pooled is a Slice")
    check_rule(S.SubsamplingOfSliceAsConv, graph, becomes=["Conv", "Conv"])


def picked(starts, ends, axes, pool="AveragePool<kernel_shape=[1,1], strides=[2,3]>", dtype="float", **more):
    text = f"t = Slice(x, s, e, a{', k' if 'k' in more else ''})  y = {pool}(t)"
    bounds = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes), **more}
    return model(f"({dtype}[2,3,6,7] x) => (y) {{ {text} }}", **bounds)


@pytest.mark.parametrize(
    ("starts", "axes"), [([1], [2]), ([2], [-1]), ([1, 2], [2, 3]), ([1, 1], [3, 2]), ([0, 1], [2, 3])]
)
def test_a_slice_before_a_pool_of_one_element_as_depthwise_convolution(starts, axes):
    (after,) = check_rule(S.SubsamplingOfSliceAsConv, picked(starts, [99] * len(axes), axes), becomes=["Conv"])
    (conv,) = after.nodes.values()
    assert conv.attrs["group"] == 3


def test_two_slices_before_a_pool():
    text = "t = Slice(x, s, e, a)  u = Slice(t, s, e, b)  y = MaxPool<kernel_shape=[1,1], strides=[2,2]>(u)"
    bounds = {"s": np.array([1]), "e": np.array([99]), "a": np.array([2])}
    graph = model(f"(float[2,3,6,7] x) => (y) {{ {text} }}", b=np.array([3]), **bounds)
    check_rule(S.SubsamplingOfTwoSlicesAsConv, graph, becomes=["Conv"])
    same = model(f"(float[2,3,6,7] x) => (y) {{ {text} }}", b=np.array([2]), **bounds)
    refuses(S.SubsamplingOfTwoSlicesAsConv, same, "same axis")


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (picked([1], [99], [1]), "rows and columns"),
        (picked([0], [99], [2]), "starts at the beginning"),
        (picked([2], [99], [2]), "mostly zeros"),
        (picked([1], [4], [2]), "ends before the image"),
        (picked([1], [99], [2], k=np.array([2])), "has steps"),
        (picked([1], [99], [2], dtype="double", pool="MaxPool<kernel_shape=[1,1], strides=[2,2]>"), "float32"),
        (picked([1], [99], [2], pool="MaxPool<kernel_shape=[1,2], strides=[2,2]>"), "more than one element"),
    ],
)
def test_slices_that_stay(graph, reason):
    refuses(S.SubsamplingOfSliceAsConv, graph, reason)


def test_a_factorised_reduction_is_carried_on_into_three_convolutions():
    """Both halves and the normalisation behind them (Zoph et al., appendix A.1)."""
    graph = model(
        """(float[1,4,6,6] x) => (y) {
            h = Slice(x, one, end, rows) s = Slice(h, one, end, columns)
            p = AveragePool<kernel_shape=[1,1], strides=[2,2]>(x) q = AveragePool<kernel_shape=[1,1], strides=[2,2]>(s)
            a = Conv(p, v) b = Conv(q, w) c = Concat<axis=1>(a, b) y = BatchNormalization(c, scale, shift, mean, var)
        }""",
        one=[1], end=[9], rows=[2], columns=[3], v=weights(3, 4, 1, 1), w=weights(3, 4, 1, 1, seed=1),
        scale=weights(6), shift=weights(6, seed=1), mean=weights(6, seed=2), var=np.ones(6, np.float32),
    )  # fmt: skip
    (graph,) = check_rule(S.SubsamplingOfTwoSlicesAsConv, graph)
    for name in S.SubsamplingOfTwoSlicesAsConv.carried_by:
        (rule,) = (rule for rule in (*C.RULES, *S.RULES) if rule.__name__ == name)
        (graph,) = check_rule(rule, graph, rtol=1e-6)
    assert ops(graph) == ["Concat", "Conv", "Conv", "Conv"]
