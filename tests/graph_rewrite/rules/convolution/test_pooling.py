"""Averages as reductions and back, pools before and after Relu and pointwise convolutions."""

import pytest

from graph_rewrite.rules.convolution import pooling as P
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights


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


AVERAGES = [
    "GlobalAveragePool",
    "AveragePool<kernel_shape=[2,2], strides=[2,2]>",
    "AveragePool<kernel_shape=[3,3], pads=[1,1,1,1]>",
    "AveragePool<kernel_shape=[3,2], pads=[1,0,0,1], strides=[2,2], ceil_mode=1>",
    'AveragePool<kernel_shape=[3,3], auto_pad="SAME_LOWER", strides=[2,1]>',
]


@pytest.mark.parametrize("average", AVERAGES)
@pytest.mark.parametrize("groups", [1, 2])
def test_an_average_and_a_pointwise_convolution_commute(average, groups):
    weighted = {"w": weights(6, 4 // groups, 1, 1), "b": weights(6)}
    conv = f"Conv<group={groups}, kernel_shape=[1,1], pads=[0,0,0,0], dilations=[1,1], strides=[1,1]>"
    before = model(f"(float[2,4,6,7] x) => (y) {{ t = {conv}(x, w, b)  y = {average}(t) }}", **weighted)
    names = sorted([average.split("<")[0], "Conv"])
    (after,) = check_rule(P.PointwiseConvAfterAverage, before, becomes=names, rtol=1e-6)
    assert [node.op for node in after.order()][-1] == "Conv"
    assert check_rule(P.PointwiseConvBeforeAverage, after, becomes=names, rtol=1e-6)[0].hash == before.hash


COUNTED = "AveragePool<kernel_shape=[2,2], pads=[1,0,0,0], count_include_pad=1>"


def test_a_bias_stays_where_padding_counts_in_the_average():
    text = "(float[1,4,5,5] x) => (y) {{ t = Conv(x, w{})  y = {}(t) }}"
    biased = model(text.format(", b", COUNTED), w=weights(3, 4, 1, 1), b=weights(3))
    refuses(P.PointwiseConvAfterAverage, biased, "less of the bias")
    check_rule(P.PointwiseConvAfterAverage, model(text.format("", COUNTED), w=weights(3, 4, 1, 1)))
    inside = model(text.format(", b", COUNTED.replace("[1,0,0,0]", "[0,0,0,0]")), w=weights(3, 4, 1, 1), b=weights(3))
    check_rule(P.PointwiseConvAfterAverage, inside, rtol=1e-6)


@pytest.mark.parametrize(
    ("conv", "average", "reason"),
    [
        ("Conv<kernel_shape=[1,2]>", AVERAGES[0], "more than one position"),
        ("Conv<kernel_shape=[1,1], strides=[2,1]>", AVERAGES[1], "skips some"),
        ("Conv<kernel_shape=[1,1], pads=[1,0,0,0]>", AVERAGES[1], "more than one position"),
        ("Conv<kernel_shape=[1,1]>", "AveragePool<kernel_shape=[2,2], pads=[2,0,0,0]>", "nothing but padding"),
    ],
)
def test_convolutions_that_do_not_commute_with_averages(conv, average, reason):
    taps = 2 if "[1,2]" in conv else 1
    weighted = {"w": weights(3, 4, 1, taps), "b": weights(3)}
    after = model(f"(float[1,4,6,6] x) => (y) {{ t = {conv}(x, w, b)  y = {average}(t) }}", **weighted)
    refuses(P.PointwiseConvAfterAverage, after, reason)
    before = model(f"(float[1,4,6,6] x) => (y) {{ t = {average}(x)  y = {conv}(t, w, b) }}", **weighted)
    refuses(P.PointwiseConvBeforeAverage, before, reason)
