"""A broadcast sum, an element-wise function and a product in row blocks."""

import pytest

from graph_rewrite import Rewriter
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


FORWARD = "(float[{}] x) => (y) {{ p = MatMul(x, v)  d = Add(p, a)  h = {}(d)  q = MatMul(h, w)  y = Add(q, b) }}"


def forward(shape, function="Gelu", width=32, **changed):
    constants = {"v": weights(6, width), "a": weights(width), "w": weights(width, 5), "b": weights(5)}
    return model(FORWARD.format(shape, function), **{**constants, **changed})


@pytest.fixture
def in_tiles():
    """The rule for blocks of two rows of 32 columns, whatever the weights."""
    rule = T.TileFeedForward()
    rule.tile_bytes, rule.weight_share = 2 * 32 * 4, 0.0
    return rule


@pytest.mark.parametrize(("shape", "rows"), [("8,6", 2), ("1,2,4,6", 2), ("3,3,6", 1)])
@pytest.mark.parametrize("function", ["Gelu", "Relu"])
def test_feed_forward_networks_in_blocks_of_rows(in_tiles, shape, rows, function):
    (tiled,) = check_rule(in_tiles, forward(shape, function))
    products = [node for node in tiled.nodes.values() if node.op == "MatMul"]
    assert {tiled.types[node.inputs[0]].shape for node in products} == {(rows, 6), (rows, 32)}


def test_biases_of_any_form(in_tiles):
    check_rule(in_tiles, forward("1,8,6", a=weights(1, 1, 32), b=weights(1)))


def test_feed_forward_networks_that_stay_whole(in_tiles):
    refuses(T.TileFeedForward, forward("8,6"), "stays in the cache")
    refuses(in_tiles, forward("2,6"), "stays in the cache")
    refuses(in_tiles, forward("37,6"), "no equal blocks")
    refuses(in_tiles, forward("8,6", v=weights(1, 6, 32)), "not a matrix")
    refuses(in_tiles, forward("8,6", a=weights(8, 1)), "more than the columns")
    in_tiles.weight_share = 1.0
    refuses(in_tiles, forward("8,6"), "small beside their weights")


def test_as_many_blocks_at_another_size(in_tiles):
    graph = forward("8,6")
    (site,) = Rewriter([in_tiles], granularity="site", deployment=False).sites(graph)
    same = in_tiles.as_in(site.replacement)
    (tiled,) = check_rule(same, forward("40,6"))
    assert sum(node.op == "Gelu" for node in tiled.nodes.values()) == 4
