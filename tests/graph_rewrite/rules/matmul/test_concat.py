"""MatMul and Concat: operands and products concatenated along rows, columns and features."""

from graph_rewrite.rules.matmul import concat as C
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights


def test_rows_of_several_operands():
    graph = model(
        "(float[2,3] a, float[1,3] b, float[4,3] c) => (y) { s = Concat<axis=-2>(a, b, c)  y = MatMul(s, w) }",
        w=weights(3, 5),
    )
    check_rule(C.MatMulOfRowConcat, graph, becomes=["Concat", "MatMul", "MatMul", "MatMul"])


def test_rows_with_a_batched_right_operand():
    graph = model("(float[2,3] a, float[1,3] b, float[6,3,5] w) => (y) { s = Concat<axis=0>(a, b)  y = MatMul(s, w) }")
    check_rule(C.MatMulOfRowConcat, graph, becomes=["Concat", "MatMul", "MatMul"])


def test_features_and_batches_of_a_batched_product_are_not_rows():
    graph = model("(float[2,3] a, float[2,1] b, float[4,5] w) => (y) { s = Concat<axis=1>(a, b)  y = MatMul(s, w) }")
    refuses(C.MatMulOfRowConcat, graph, "contracted axis")
    graph = model(
        "(float[1,2,3] a, float[1,2,3] b, float[2,3,5] w) => (y) { s = Concat<axis=0>(a, b)  y = MatMul(s, w) }"
    )
    refuses(C.MatMulOfRowConcat, graph, "batch axes")


def test_products_concatenated_along_rows():
    graph = model(
        "(float[2,3,4] a, float[5,3,4] b) => (y) { s = MatMul(a, w)  t = MatMul(b, w)  y = Concat<axis=0>(s, t) }",
        w=weights(4, 6),
    )
    check_rule(C.RowConcatOfMatMuls, graph, becomes=["Concat", "MatMul"])


def test_products_concatenated_along_columns_share_no_rows():
    graph = model(
        "(float[3,4] a, float[3,4] b) => (y) { s = MatMul(a, w)  t = MatMul(b, w)  y = Concat<axis=1>(s, t) }",
        w=weights(4, 6),
    )
    refuses(C.RowConcatOfMatMuls, graph, "along columns")


def test_products_concatenated_along_columns():
    text = "(float[2,3,4] a) => (y) {{ s = MatMul(a, v)  t = MatMul(a, w)  y = Concat<axis={}>(s, t) }}"
    check_rule(C.ColumnConcatOfMatMuls, model(text.format(-1), v=weights(4, 5), w=weights(4, 2)), becomes=["MatMul"])
    refuses(C.ColumnConcatOfMatMuls, model(text.format(1), v=weights(4, 5), w=weights(4, 5)), "not along columns")


def test_weights_of_different_batches_are_not_concatenated():
    graph = model(
        "(float[2,3,4] a) => (y) { s = MatMul(a, v)  t = MatMul(a, w)  y = Concat<axis=2>(s, t) }",
        v=weights(4, 5), w=weights(2, 4, 5),
    )  # fmt: skip
    refuses(C.ColumnConcatOfMatMuls, graph, "more than their columns")


def test_concatenated_features_and_back():
    graph = model(
        "(float[2,3,4] a, float[2,3,2] b) => (y) { s = Concat<axis=-1>(a, b)  y = MatMul(s, w) }", w=weights(6, 5)
    )
    (separate,) = check_rule(C.MatMulOfFeatureConcat, graph, becomes=["Add", "MatMul", "MatMul"])
    check_rule(C.SumOfMatMuls, separate, becomes=["Concat", "MatMul"])


def test_feature_concat_conditions():
    text = "(float[2,4] a, float[2,4] b) => (y) {{ s = Concat<axis={}>(a, b)  y = MatMul(s, w) }}"
    refuses(C.MatMulOfFeatureConcat, model(text.format(0), w=weights(4, 5)), "not along the contracted axis")
    refuses(C.MatMulOfFeatureConcat, model(text.format(1), w=weights(3, 8, 5)), "not a matrix")


def test_sum_of_products_conditions():
    text = "(float[2,3,4] a, float[{}] b) => (y) {{ s = MatMul(a, v)  t = MatMul({}, w)  y = Add(s, t) }}"
    operands = {"v": weights(4, 5), "w": weights(4, 5, seed=1)}
    refuses(C.SumOfMatMuls, model(text.format("1,3,4", "b"), **operands), "more than their last axis")
    refuses(C.SumOfMatMuls, model(text.format("2,3,4", "a"), **operands), "constant or the same")
