"""Averages as reductions and back, Relu past MaxPool, pools of one element as strides."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.rules.convolution import absorption as C
from graph_rewrite.rules.convolution import pooling as P
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights


@pytest.mark.parametrize("shape", ["2,3,5", "2,3,4,5", "1,2,3,2,2"])
def test_global_average_as_mean_and_back(shape):
    graph = model(f"(float[{shape}] x) => (y) {{ y = GlobalAveragePool(x) }}")
    (mean,) = check_rule(P.GlobalAveragePoolToReduceMean, graph, becomes=["ReduceMean"])
    assert check_rule(P.ReduceMeanToGlobalAveragePool, mean, becomes=["GlobalAveragePool"])[0].hash == graph.hash


MEAN = "(float[2,3,4,5] x) => (y) {{ y = ReduceMean<keepdims={}>(x, axes) }}"


def test_mean_that_drops_its_axes():
    check_rule(
        P.ReduceMeanToGlobalAveragePool, model(MEAN.format(0), axes=[-1, 2]), becomes=["GlobalAveragePool", "Reshape"]
    )


def test_mean_with_axes_as_attribute():
    graph = model("(float[2,3,4,5] x) => (y) { y = ReduceMean<axes=[2,3], keepdims=1>(x) }", opset=17)
    check_rule(P.ReduceMeanToGlobalAveragePool, graph, becomes=["GlobalAveragePool"])


def test_other_means_stay():
    refuses(P.ReduceMeanToGlobalAveragePool, model(MEAN.format(1), axes=[3]), "not over all spatial axes")
    refuses(P.ReduceMeanToGlobalAveragePool, model(MEAN.format(1), axes=[1, 2, 3]), "not over all spatial axes")
    everything = model("(float[2,3,4,5] x) => (y) { y = ReduceMean(x) }")
    refuses(P.ReduceMeanToGlobalAveragePool, everything, "not over all spatial axes")


AVERAGE = "(float[2,3,4,5] x) => (y) {{ y = AveragePool<{}>(x) }}"


def test_average_over_the_whole_image():
    graph = model(AVERAGE.format("kernel_shape=[4,5], strides=[4,5]"))
    check_rule(P.AveragePoolToGlobal, graph, becomes=["GlobalAveragePool"])
    refuses(P.AveragePoolToGlobal, model(AVERAGE.format("kernel_shape=[4,4]")), "does not cover")
    refuses(P.AveragePoolToGlobal, model(AVERAGE.format("kernel_shape=[4,5], pads=[1,0,1,0]")), "does not cover")


POOLS = [
    "kernel_shape=[2,2], strides=[2,2]",
    "kernel_shape=[3,3], pads=[1,1,1,1]",
    "kernel_shape=[2,1], dilations=[2,1]",
]


@pytest.mark.parametrize("attrs", POOLS)
def test_relu_moves_past_max_pool(attrs):
    before = f"(float[2,3,4,5] x) => (y) {{ t = Relu(x)  y = MaxPool<{attrs}>(t) }}"
    (after,) = check_rule(P.ReluAfterMaxPool, model(before), becomes=["MaxPool", "Relu"])
    assert check_rule(P.ReluBeforeMaxPool, after, becomes=["MaxPool", "Relu"])[0].hash == model(before).hash


@pytest.mark.parametrize(
    "attrs", ["kernel_shape=[2,2], dilations=[3,1], pads=[1,0,1,0]", "kernel_shape=[1,1], strides=[3,1], ceil_mode=1"]
)
def test_windows_that_may_see_only_padding_are_refused(attrs):
    before = f"(float[2,3,5,5] x) => (y) {{ t = Relu(x)  y = MaxPool<{attrs}>(t) }}"
    refuses(P.ReluAfterMaxPool, model(before), "nothing but padding")
    after = f"(float[2,3,5,5] x) => (y) {{ t = MaxPool<{attrs}>(x)  y = Relu(t) }}"
    refuses(P.ReluBeforeMaxPool, model(after), "nothing but padding")


def test_means_of_doubles_stay():
    graph = model("(double[2,3,4,5] x) => (y) { y = ReduceMean(x, axes) }", axes=[2, 3])
    refuses(P.ReduceMeanToGlobalAveragePool, graph, "no doubles")


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
    check_rule(P.ConvOfSubsampling, graph, becomes=["Conv"])


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
    refuses(P.ConvOfSubsampling, graph, reason)


def test_a_pool_of_a_slice_is_left_to_the_rule_that_takes_both():
    text = "(float[1,4,6,6] x) => (y) { s = Slice(x, one, end, two) p = MaxPool<kernel_shape=[1,1], strides=[2,2]>(s) "
    graph = model(text + "y = Conv(p, w) }", one=[1], end=[9], two=[2], w=weights(3, 4, 1, 1))
    refuses(P.ConvOfSubsampling, graph, "what is pooled is a Slice")
    check_rule(P.SubsamplingOfSliceAsConv, graph, becomes=["Conv", "Conv"])


def averaged(attributes: str, shape: str = "2,3,6,7", dtype: str = "float"):
    return model(f"({dtype}[{shape}] x) => (y) {{ y = AveragePool<{attributes}>(x) }}")


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("kernel_shape=[3,3]", ["Conv"]),
        ("kernel_shape=[2,3], strides=[2,1]", ["Conv"]),
        ("kernel_shape=[3,3], pads=[1,1,1,1], count_include_pad=1", ["Conv"]),
        ("kernel_shape=[3,3], pads=[1,1,1,1]", ["Conv", "Mul"]),
        ("kernel_shape=[3,2], pads=[2,0,0,1], strides=[2,2]", ["Conv", "Mul"]),
        ('kernel_shape=[3,3], auto_pad="SAME_UPPER", strides=[2,2]', ["Conv", "Mul"]),
    ],
)
def test_an_average_as_depthwise_convolution(attributes, expected):
    (after,) = check_rule(P.AveragePoolAsConv, averaged(attributes), becomes=expected, rtol=1e-6)
    assert next(node for node in after.nodes.values() if node.op == "Conv").attrs["group"] == 3


def test_averages_of_lines_and_volumes():
    check_rule(
        P.AveragePoolAsConv, averaged("kernel_shape=[3], pads=[1,1]", "1,4,9"), becomes=["Conv", "Mul"], rtol=1e-6
    )
    check_rule(P.AveragePoolAsConv, averaged("kernel_shape=[2,2,2]", "1,2,4,4,5"), becomes=["Conv"], rtol=1e-6)


@pytest.mark.parametrize(
    ("graph", "reason"),
    [
        (averaged("kernel_shape=[3,3], strides=[2,2], ceil_mode=1"), "rounded up"),
        (averaged("kernel_shape=[1,1], strides=[2,2]"), "one element"),
        (averaged("kernel_shape=[3,3]", dtype="double"), "float32"),
        (averaged("kernel_shape=[2,2], pads=[2,0,0,0]"), "nothing but padding"),
        (averaged("kernel_shape=[2,2], dilations=[2,2]"), "gaps"),
    ],
)
def test_averages_that_stay(graph, reason):
    refuses(P.AveragePoolAsConv, graph, reason)


def picked(starts, ends, axes, pool="AveragePool<kernel_shape=[1,1], strides=[2,3]>", dtype="float", **more):
    text = f"t = Slice(x, s, e, a{', k' if 'k' in more else ''})  y = {pool}(t)"
    bounds = {"s": np.array(starts), "e": np.array(ends), "a": np.array(axes), **more}
    return model(f"({dtype}[2,3,6,7] x) => (y) {{ {text} }}", **bounds)


@pytest.mark.parametrize(
    ("starts", "axes"), [([1], [2]), ([2], [-1]), ([1, 2], [2, 3]), ([1, 1], [3, 2]), ([0, 1], [2, 3])]
)
def test_a_slice_before_a_pool_of_one_element_as_depthwise_convolution(starts, axes):
    (after,) = check_rule(P.SubsamplingOfSliceAsConv, picked(starts, [99] * len(axes), axes), becomes=["Conv"])
    (conv,) = after.nodes.values()
    assert conv.attrs["group"] == 3


def test_two_slices_before_a_pool():
    text = "t = Slice(x, s, e, a)  u = Slice(t, s, e, b)  y = MaxPool<kernel_shape=[1,1], strides=[2,2]>(u)"
    bounds = {"s": np.array([1]), "e": np.array([99]), "a": np.array([2])}
    graph = model(f"(float[2,3,6,7] x) => (y) {{ {text} }}", b=np.array([3]), **bounds)
    check_rule(P.SubsamplingOfTwoSlicesAsConv, graph, becomes=["Conv"])
    same = model(f"(float[2,3,6,7] x) => (y) {{ {text} }}", b=np.array([2]), **bounds)
    refuses(P.SubsamplingOfTwoSlicesAsConv, same, "same axis")


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
    refuses(P.SubsamplingOfSliceAsConv, graph, reason)


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
    (graph,) = check_rule(P.SubsamplingOfTwoSlicesAsConv, graph)
    for name in P.SubsamplingOfTwoSlicesAsConv.carried_by:
        (rule,) = (rule for rule in (*C.RULES, *P.RULES) if rule.__name__ == name)
        (graph,) = check_rule(rule, graph, rtol=1e-6)
    assert ops(graph) == ["Concat", "Conv", "Conv", "Conv"]
