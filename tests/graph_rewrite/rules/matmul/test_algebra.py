"""MatMul algebra keeps the outputs, and refuses vectors, inflated weights and broadcast contractions."""

import numpy as np

from graph_rewrite.rules.matmul import algebra as M
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights


def test_associates_both_ways_at_run_time():
    text = "(float[2,3,4] a, float[4,5] b, float[2,5,6] c) => (y) {{ {} }}"
    check_rule(M.AssociateMatMulRight, model(text.format("t = MatMul(a, b)  y = MatMul(t, c)")))
    check_rule(M.AssociateMatMulLeft, model(text.format("t = MatMul(b, c)  y = MatMul(a, t)")))


def test_product_of_constants_is_folded():
    graph = model("(float[2,6] x) => (y) { t = MatMul(x, v)  y = MatMul(t, w) }", v=weights(6, 5), w=weights(5, 4))
    check_rule(M.AssociateMatMulRight, graph, becomes=["MatMul"], rtol=1e-6)


def test_low_rank_factors_are_not_multiplied_out():
    graph = model("(float[2,6] x) => (y) { t = MatMul(x, v)  y = MatMul(t, w) }", v=weights(6, 1), w=weights(1, 6))
    refuses(M.AssociateMatMulRight, graph, "36 elements, both together 12")


def test_vectors_do_not_associate():
    graph = model("(float[3,4] a, float[4] b, float[3,2] c) => (y) { t = MatMul(a, b)  y = MatMul(t, c) }")
    refuses(M.AssociateMatMulRight, graph, "vector")
    graph = model("(float[3,4] a, float[4] b, float[3] c) => (y) { t = MatMul(a, b)  y = MatMul(c, t) }")
    refuses(M.AssociateMatMulLeft, graph, "vector")


def test_shared_left_operand_is_factored_with_broadcast_batches():
    graph = model(
        "(float[2,3] a, float[3,4] b, float[5,3,4] c) => (y) { s = MatMul(a, b)  t = MatMul(a, c)  y = Add(s, t) }"
    )
    check_rule(M.FactorLeftOperand, graph, becomes=["Add", "MatMul"])


def test_shared_right_operand_is_factored_with_broadcast_rows():
    graph = model(
        "(float[1,3] a, float[5,3] b, float[3,4] c) => (y) { s = MatMul(a, c)  t = MatMul(b, c)  y = Add(s, t) }"
    )
    check_rule(M.FactorRightOperand, graph, becomes=["Add", "MatMul"])


def test_vectors_are_not_factored():
    graph = model(
        "(float[4,3] a, float[3] b, float[3,4] c) => (y) { s = MatMul(a, b)  t = MatMul(a, c)  y = Add(s, t) }"
    )
    refuses(M.FactorLeftOperand, graph, "vector")
    graph = model(
        "(float[3] a, float[4,3] b, float[3,4] c) => (y) { s = MatMul(a, c)  t = MatMul(b, c)  y = Add(s, t) }"
    )
    refuses(M.FactorRightOperand, graph, "vector")


def test_distributes_over_sums():
    right = model("(float[2,3] a, float[3,4] b, float[7,3,1] c) => (y) { s = Add(b, c)  y = MatMul(a, s) }")
    check_rule(M.DistributeOverRightSum, right, becomes=["Add", "MatMul", "MatMul"])
    left = model("(float[2,3] a, float[6,1,3] b, float[3,4] c) => (y) { s = Add(a, b)  y = MatMul(s, c) }")
    check_rule(M.DistributeOverLeftSum, left, becomes=["Add", "MatMul", "MatMul"])


def test_bias_before_a_product_moves_behind_it():
    graph = model("(float[2,5,3] x) => (y) { s = Add(b, x)  y = MatMul(s, w) }", b=weights(3), w=weights(3, 4))
    check_rule(M.DistributeOverLeftSum, graph, becomes=["Add", "MatMul"], rtol=1e-6)
    batched = model("(float[2,5,3] x) => (y) { s = Add(b, x)  y = MatMul(s, w) }", b=weights(3), w=weights(2, 3, 4))
    check_rule(M.DistributeOverLeftSum, batched, becomes=["Add", "MatMul"], rtol=1e-6)


def test_summand_broadcast_along_the_contracted_axis_is_refused():
    text = "(float[2,3] a, float[2,1] b, float[3,4] c) => (y) { s = Add(a, b)  y = MatMul(s, c) }"
    refuses(M.DistributeOverLeftSum, model(text), "contracted axis")
    text = "(float[2,3] a, float[1,4] b, float[3,4] c) => (y) { s = Add(b, c)  y = MatMul(a, s) }"
    refuses(M.DistributeOverRightSum, model(text), "contracted axis")


def test_transpose_moves_from_an_operand_to_the_product():
    graph = model("(float[2,3,4] a) => (y) { t = Transpose<perm=[0,2,1]>(a)  y = MatMul(t, w) }", w=weights(3, 5))
    check_rule(M.TransposedTimesConstant, graph, becomes=["MatMul", "Transpose"])
    graph = model("(float[3,4] a) => (y) { t = Transpose(a)  y = MatMul(w, t) }", w=weights(5, 4))
    check_rule(M.ConstantTimesTransposed, graph, becomes=["MatMul", "Transpose"])


def test_transpose_of_other_axes_stays():
    graph = model("(float[3,2,4] a) => (y) { t = Transpose<perm=[1,0,2]>(a)  y = MatMul(t, w) }", w=weights(4, 5))
    refuses(M.TransposedTimesConstant, graph, "exchange of the last two axes")
    graph = model("(float[3,2,4] a) => (y) { t = Transpose<perm=[1,0,2]>(a)  y = MatMul(w, t) }", w=weights(5, 3))
    refuses(M.ConstantTimesTransposed, graph, "exchange of the last two axes")


def test_identity_matrix_is_dropped():
    graph = model("(float[2,3] x) => (y) { t = MatMul(x, w)  y = Relu(t) }", w=np.eye(3))
    check_rule(M.DropIdentityOnRight, graph, becomes=["Relu"])
    graph = model("(float[3,2] x) => (y) { t = MatMul(w, x)  y = Relu(t) }", w=np.eye(3))
    check_rule(M.DropIdentityOnLeft, graph, becomes=["Relu"])


def test_other_matrices_are_kept():
    almost = np.eye(3)
    almost[2, 0] = 1e-3
    text = "(float[3,3] x) => (y) { t = MatMul(x, w)  y = Relu(t) }"
    refuses(M.DropIdentityOnRight, model(text, w=almost), "not the identity")
    refuses(M.DropIdentityOnRight, model(text, w=weights(3, 4)), "not a square")
    refuses(M.DropIdentityOnLeft, model("(float[3,3] x) => (y) { y = MatMul(w, x) }", w=almost), "not the identity")
