"""A broadcast sum, an element-wise function and a product in row blocks."""

import pytest

from graph_rewrite.rules.matmul import tiling as T
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

JOINT = "(float[{}] x, float[{}] y) => (z) {{ s = Add(x, y)  t = {}(s)  p = MatMul(t, w)  z = Add(p, b) }}"


def blocks(count: int, function: str) -> list[str]:
    return ["Split", *["Add", function, "MatMul", "Add"] * count, "Concat"]


@pytest.mark.parametrize("function", ["Gelu", "Relu", "Sigmoid", "Tanh"])
def test_joint_network_in_eight_blocks(function):
    graph = model(JOINT.format("1,16,1,6", "1,1,3,6", function), w=weights(6, 5), b=weights(5))
    (tiled,) = check_rule(T.TileBroadcastLinear8, graph, becomes=blocks(8, function))
    halves = {node.op: tiled.types[node.inputs[0]].shape for node in tiled.nodes.values() if node.op == "MatMul"}
    assert halves == {"MatMul": (1, 2, 3, 6)}


@pytest.mark.parametrize(("x", "y"), [("4,1,6", "4,2,6"), ("1,3,6", "4,1,6"), ("4,1,6", "1,3,6"), ("1,4,6", "2,4,6")])
def test_either_summand_may_be_broadcast(x, y):
    graph = model(JOINT.format(x, y, "Tanh"), w=weights(6, 5), b=weights(5))
    check_rule(T.TileBroadcastLinear2, graph, becomes=blocks(2, "Tanh"))


def test_conditions():
    def joint(x, y, **changed):
        return model(JOINT.format(x, y, "Tanh"), **{"w": weights(6, 5), "b": weights(5), **changed})

    refuses(T.TileBroadcastLinear2, joint("4,3,6", "4,3,6"), "no axis")
    refuses(T.TileBroadcastLinear2, joint("3,1,6", "1,5,6"), "no axis")
    refuses(T.TileBroadcastLinear8, joint("4,1,6", "1,4,6"), "no axis")
    refuses(T.TileBroadcastLinear2, joint("4,1,6", "1,3,6", w=weights(1, 6, 5)), "weight")
    refuses(T.TileBroadcastLinear2, joint("4,1,6", "6"), "batch of matrices")
    refuses(T.TileBroadcastLinear2, joint("4,1,6", "1,3,6", b=weights(3, 1)), "more than the columns")


@pytest.mark.parametrize("function", ["Softmax", "LogSoftmax"])
def test_softmax_goes_into_the_tiles(function):
    text = f"(float[2,3] x, float[1,3] y) => (z) {{ c = Concat<axis=0>(x, y)  z = {function}<axis=-1>(c) }}"
    check_rule(T.SoftmaxOfTiles, model(text), becomes=[function, function, "Concat"])


def test_softmax_along_the_joined_axis_stays():
    text = "(float[2,3] x, float[2,1] y) => (z) { c = Concat<axis=-1>(x, y)  z = Softmax<axis=1>(c) }"
    refuses(T.SoftmaxOfTiles, model(text), "axis of the Concat")
