"""Averages as reductions and back, Relu past MaxPool."""

import pytest

from graph_rewrite.rules import pooling as P
from tests.graph_rewrite.rules.checking import check_rule, model, refuses


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
