"""MatMul as pointwise convolution and back; consecutive conversions cancel."""

import pytest

from graph_rewrite import Rewriter
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.rules.algebra import elimination_shape
from graph_rewrite.rules.matmul import pointwise as L
from graph_rewrite.rules.movement import reshape as movement_reshape
from graph_rewrite.rules.movement import transpose as movement
from tests.graph_rewrite.rules.checking import check_rule, model, ops, refuses, weights

AROUND = ["Reshape", "Transpose", "Conv", "Transpose", "Reshape"]
LINEAR = "(float[{}] x) => (y) {{ t = MatMul(x, w)  y = Add(t, b) }}"


@pytest.mark.parametrize("shape", ["6,4", "2,3,4", "1,5,4", "2,3,2,4"])
def test_linear_layer_as_convolution_and_back(shape):
    graph = model(LINEAR.format(shape), w=weights(4, 5), b=weights(5))
    (conv,) = check_rule(L.LinearToPointwiseConv, graph, becomes=AROUND)
    assert check_rule(L.PointwiseConvToLinear, conv, becomes=["Add", "MatMul"])[0].hash == graph.hash


def test_matmul_as_convolution_and_back():
    graph = model("(float[2,3,80] x) => (y) { y = MatMul(x, w) }", w=weights(80, 60))
    (conv,) = check_rule(L.MatMulToPointwiseConv, graph, becomes=AROUND)
    assert check_rule(L.PointwiseConvToLinear, conv, becomes=["MatMul"])[0].hash == graph.hash


def test_bias_goes_along():
    text = "(float[3,4] x) => (y{}) {{ t = MatMul(x, w)  y = Add(t, b) }}"
    refuses(L.MatMulToPointwiseConv, model(text.format(""), w=weights(4, 5), b=weights(5)), "constant bias")
    check_rule(
        L.MatMulToPointwiseConv, model(text.format(", t"), w=weights(4, 5), b=weights(5)), becomes=[*AROUND, "Add"]
    )
    along_rows = model(text.format(""), w=weights(4, 5), b=weights(3, 1))
    check_rule(L.MatMulToPointwiseConv, along_rows, becomes=[*AROUND, "Add"])


def test_conversion_conditions():
    refuses(L.MatMulToPointwiseConv, model("(float[4] x) => (y) { y = MatMul(x, w) }", w=weights(4, 5)), "vector")
    batched = model("(float[2,3,4] x) => (y) { y = MatMul(x, w) }", w=weights(2, 4, 5))
    refuses(L.MatMulToPointwiseConv, batched, "not a matrix")
    integers = model("(int32[3,4] x) => (y) { y = MatMul(x, w) }", w=weights(4, 5).astype("int32"))
    refuses(L.MatMulToPointwiseConv, integers, "floating-point")
    along_rows = model(LINEAR.format("3,4"), w=weights(4, 5), b=weights(3, 1))
    refuses(L.LinearToPointwiseConv, along_rows, "more than the columns")


FEED_FORWARD = """(float[1,6,4] x) => (y) {
    t = MatMul(x, v)  u = Add(t, a)  g = Gelu(u)  p = MatMul(g, w)  y = Add(p, b)
}"""
HIDDEN = {"v": weights(4, 8), "a": weights(8), "w": weights(8, 4), "b": weights(4)}


@pytest.mark.parametrize("f", ["Gelu", "Relu"])
def test_feed_forward_network_stays_in_the_layout(f):
    graph = model(FEED_FORWARD.replace("Gelu", f), **HIDDEN)
    check_rule(L.FeedForwardToPointwiseConvs, graph, becomes=[*AROUND, f, "Conv"])


def test_hidden_values_that_vary_along_rows():
    along_rows = model(FEED_FORWARD, **{**HIDDEN, "a": weights(6, 1)})
    refuses(L.FeedForwardToPointwiseConvs, along_rows, "more than the columns")


def test_single_conversions_compose_to_the_same_network():
    graph = model(FEED_FORWARD, **HIDDEN)
    rules = [
        L.LinearToPointwiseConv(), movement_reshape.ReshapeAfterUnary(), movement.TransposeAfterUnary(),
        elimination_shape.ComposeReshapes(), elimination_shape.DropReshape(), elimination_shape.ComposeTransposes(),
    ]  # fmt: skip
    rewriter = Rewriter(rules, "site", deployment=False)
    for _ in range(10):
        candidates = rewriter.candidates(graph)
        if not candidates:
            break
        graph = candidates[0].apply()
    assert ops(graph) == sorted([*AROUND, "Gelu", "Conv"])


RESIDUAL = """(float[1,4,1,6] image, float[{}] r) => (y) <int64[3] rows = {{1, 6, 4}}> {{
    t = Transpose<perm=[0,2,3,1]>(image)  u = Reshape(t, rows)  y = Add(r, u)
}}"""


def test_residual_sum_moves_into_the_layout():
    check_rule(L.ResidualInChannels, model(RESIDUAL.format("1,6,4")), becomes=["Add", *["Reshape", "Transpose"] * 2])


def test_residual_conditions():
    refuses(L.ResidualInChannels, model(RESIDUAL.format("1,6,1")), "broadcast")
    text = """(float[1,4,2,3] image, float[1,6,4] r) => (y) <int64[3] rows = {1, 6, 4}> {
        t = Transpose<perm=[0,2,3,1]>(image)  u = Reshape(t, rows)  y = Add(r, u)
    }"""
    refuses(L.ResidualInChannels, model(text), "not of the rows of an image")


def test_residual_does_not_broadcast_the_rows():
    text = """(float[1,3,1,1] image, float[3,3,3,3] r) => (y) <int64[4] column = {3, 1, 1, 1}> {
        t = Transpose<perm=[0,2,3,1]>(image)  u = Reshape(t, column)  y = Add(r, u)
    }"""
    refuses(L.ResidualInChannels, model(text), "one summand is broadcast")


CONV = "(float[{}] x) => (y) {{ y = Conv<{}>(x, w, b) }}"


@pytest.mark.parametrize("spatial", [(5,), (3, 4), (2, 3, 2)])
def test_pointwise_convolution_as_products(spatial):
    ones = (1,) * len(spatial)
    shape = ",".join(map(str, (2, 4, *spatial)))
    graph = model(CONV.format(shape, "group=1"), w=weights(6, 4, *ones), b=weights(6))
    check_rule(L.PointwiseConvToChannelsLast, graph, becomes=["Transpose", "MatMul", "Add", "Transpose"])
    check_rule(L.PointwiseConvToMatMul, graph, becomes=["MatMul", "Add", *["Reshape"] * (2 * (len(spatial) > 1))])


def test_product_of_positions_as_convolution_and_back():
    graph = model("(float[2,4,3,5] x) => (y) { y = Conv<kernel_shape=[1,1]>(x, w) }", w=weights(6, 4, 1, 1))
    (product,) = check_rule(L.PointwiseConvToMatMul, graph, becomes=["Reshape", "MatMul", "Reshape"])
    assert check_rule(L.MatMulOfPositionsToConv, product, becomes=["Conv"])[0].hash == graph.hash


@pytest.mark.parametrize(
    ("attrs", "w", "n"),
    [("strides=[2,2]", (6, 4, 1, 1), 6), ("pads=[1,0,0,0]", (6, 4, 1, 1), 6), ("group=2", (6, 2, 1, 1), 6),
     ("pads=[1,1,1,1]", (6, 4, 3, 3), 6)],
)  # fmt: skip
def test_other_convolutions_are_no_products(attrs, w, n):
    graph = model(CONV.format("2,4,4,5", attrs), w=weights(*w), b=weights(n))
    refuses(L.PointwiseConvToChannelsLast, graph, "not pointwise")
    refuses(L.PointwiseConvToMatMul, graph, "not pointwise")


POSITIONS = "(float[2,4,3,5] x) => (y) { r = Reshape(x, p)  t = MatMul(w, r)  y = Reshape(t, shape) }"


def test_products_of_other_positions_stay():
    text, w = POSITIONS, weights(6, 4)
    merged = model(text, p=[1, 4, 30], w=w, shape=[1, 6, 2, 15])
    refuses(L.MatMulOfPositionsToConv, merged, "merge the positions")
    refuses(L.MatMulOfPositionsToConv, model(text, p=[2, 4, 15], w=w, shape=[2, 6, 5, 3]), "restore the positions")
    batched = model(text, p=[2, 4, 15], w=weights(2, 6, 4), shape=[2, 6, 3, 5])
    refuses(L.MatMulOfPositionsToConv, batched, "not a matrix")


IMAGE = """(float[2,3,4] x) => (y) {{
    r = Reshape(x, rows)  image = Transpose<perm=[0,3,1,2]>(r)  c = Conv<{}>(image, w)
    t = Transpose<perm=[0,2,3,1]>(c)  y = Reshape(t, shape)
}}"""


def test_convolutions_that_mix_rows_are_not_linear():
    one, three = weights(5, 4, 1, 1), weights(5, 4, 1, 3)
    padded = model(IMAGE.format("pads=[0,1,0,1]"), rows=[1, 1, 6, 4], w=three, shape=[2, 3, 5])
    refuses(L.PointwiseConvToLinear, padded, "not pointwise")
    other_rows = model(IMAGE.format("group=1"), rows=[1, 3, 1, 8], w=weights(5, 8, 1, 1), shape=[1, 3, 5])
    refuses(L.PointwiseConvToLinear, other_rows, "does not keep the rows")
    other_axes = model(IMAGE.format("group=1"), rows=[1, 1, 6, 4], w=one, shape=[3, 2, 5])
    refuses(L.PointwiseConvToLinear, other_axes, "does not restore")


def test_reshapes_around_a_product_are_dropped():
    text = "(float[2,3,4] x) => (y) { r = Reshape(x, rows)  t = MatMul(r, w)  y = Reshape(t, shape) }"
    graph = model(text, rows=[6, 4], w=weights(4, 5), shape=[2, 3, 5])
    check_rule(L.DropReshapeAroundMatMul, graph, becomes=["MatMul"])
    other = model(text, rows=[6, 4], w=weights(4, 5), shape=[3, 2, 5])
    refuses(L.DropReshapeAroundMatMul, other, "more than merge")
    batched = model(text, rows=[2, 3, 4], w=weights(2, 4, 5), shape=[2, 3, 5])
    refuses(L.DropReshapeAroundMatMul, batched, "rows and a matrix")


def test_products_of_doubles_stay():
    graph = model("(double[3,4] x) => (y) { w = Cast<to=11>(c)  y = MatMul(x, w) }", c=weights(4, 5))
    refuses(L.MatMulToPointwiseConv, normalise(graph)[0], "not on doubles")
