"""FusedMatMul of ONNX Runtime against MatMul, Transpose and a scale, both ways."""

import numpy as np
import pytest

from graph_rewrite.rules.fusion import fused_matmul as M
from tests.graph_rewrite.rules.checking import check_rule, model, refuses

FLOAT32 = 1e-6  # constants and attributes are rounded to float32, wherever the arithmetic is done


@pytest.mark.parametrize(("shapes", "transposed", "operands", "rule", "more"), [
    (("4,5", "4,6"), "a", "t, b", M.FuseLeftTranspose, M.FuseLeftTransposeMore),
    (("5,4", "6,4"), "b", "a, t", M.FuseRightTranspose, M.FuseRightTransposeMore),
])  # fmt: skip
def test_product_with_a_transposed_operand(shapes, transposed, operands, rule, more):
    text = f"""(float[2,3,{shapes[0]}] a, float[2,3,{shapes[1]}] b) => (y)
        {{ t = Transpose<perm=[0,1,3,2]>({transposed}) y = MatMul({operands}) }}"""
    (fused,) = check_rule(rule, model(text), becomes=["FusedMatMul"])
    check_rule(M.SplitFusedMatMul, fused, becomes=["MatMul", "Transpose"])
    again = text.replace("MatMul(", "com.microsoft.FusedMatMul<alpha=0.5>(")
    check_rule(more, model(again), becomes=["FusedMatMul"])


def test_double_transposition_cancels():
    text = """(float[4,5] a, float[4,6] b) => (y) { t = Transpose<perm=[1,0]>(a) u = Transpose<perm=[1,0]>(t)
        y = com.microsoft.FusedMatMul<transA=1>(u, b) }"""
    (once,) = check_rule(M.FuseLeftTransposeMore, model(text), becomes=["FusedMatMul", "Transpose"])
    (twice,) = check_rule(M.FuseLeftTransposeMore, once, becomes=["FusedMatMul"])
    assert [node.attrs for node in twice.nodes.values()] == [{"transA": 1}]


def test_products_that_the_fused_operator_does_not_know():
    moved = "(float[4,3,5] a, float[3,5,6] b) => (y) { t = Transpose<perm=[1,0,2]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(moved), "more than exchange the last two axes")
    vector = "(float[5,4] a, float[5] b) => (y) { t = Transpose<perm=[1,0]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(vector), "an operand is a vector")
    integers = "(int32[5,4] a, int32[5,6] b) => (y) { t = Transpose<perm=[1,0]>(a) y = MatMul(t, b) }"
    refuses(M.FuseLeftTranspose, model(integers), "float32 only")


def test_scaled_product():
    text = "(float[2,4,5] a, float[2,5,6] b) => (y) {{ p = {}(a, b) y = {}(p, c) }}"
    times, by = text.format("MatMul", "Mul"), text.format("MatMul", "Div")
    scale = np.float32(0.3)
    (fused,) = check_rule(M.FuseScaledMatMul, model(times, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    check_rule(M.SplitFusedMatMul, fused, becomes=["MatMul", "Mul"], rtol=FLOAT32)
    check_rule(M.FuseDividedMatMul, model(by, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    again = text.format("com.microsoft.FusedMatMul<alpha=0.5>", "Mul")
    check_rule(M.FuseScaleMore, model(again, c=scale), becomes=["FusedMatMul"], rtol=FLOAT32)
    refuses(M.FuseDividedMatMul, model(by, c=np.float32(0)), "the scale is inf")


def test_a_product_over_transposed_batches_is_left_alone():
    text = """(float[4,4,4] a, float[4,4,4] b) => (float[4,4,4] y) <float[4,4,4] p> { t = Transpose<perm=[0,2,1]>(a)
        p = com.microsoft.FusedMatMul<transBatchA=1>(t, b) y = Mul(p, c) }"""
    for rule in (M.FuseLeftTransposeMore, M.FuseScaleMore, M.SplitFusedMatMul):
        refuses(rule, model(text, c=np.float32(0.3)), "with its batches")
