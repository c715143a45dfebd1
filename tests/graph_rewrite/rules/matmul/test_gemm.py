"""Gemm and MatMul in both directions, with every flag and factor."""

import itertools

import numpy as np
import pytest

from graph_rewrite.rules.matmul import gemm as G
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

FLAGS = list(itertools.product((0, 1), (0, 1)))


def _gemm(trans_a, trans_b, c="", constant=False, attrs=""):
    a, b = ("4,3" if trans_a else "3,4"), ((5, 4) if trans_b else (4, 5))
    inputs = f"float[{a}] a" + ("" if constant else f", float[{b[0]},{b[1]}] b")
    operands = {"b": weights(*b)} if constant else {}
    flags = f"transA={trans_a}, transB={trans_b}{attrs}"
    if c:
        return model(f"({inputs}, float[{c}] c) => (y) {{ y = Gemm<{flags}>(a, b, c) }}", **operands)
    return model(f"({inputs}) => (y) {{ y = Gemm<{flags}>(a, b) }}", **operands)


@pytest.mark.parametrize("flags", FLAGS)
def test_gemm_to_matmul(flags):
    check_rule(G.GemmToMatMul, _gemm(*flags))
    check_rule(G.GemmToMatMul, _gemm(*flags, attrs=", alpha=0.5, beta=3.0"))


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize("c", ["5", "3,1", "1", "3,5"])
def test_gemm_to_matmul_and_add(flags, c):
    check_rule(G.GemmToMatMulAdd, _gemm(*flags, c=c))
    check_rule(G.GemmToMatMulAdd, _gemm(*flags, c=c, constant=True, attrs=", alpha=0.5, beta=2.0"))


def test_integer_gemm_with_factors_stays():
    text = "(int32[3,4] a, int32[4,5] b{}) => (y) {{ y = Gemm<alpha=0.5>(a, b{}) }}"
    refuses(G.GemmToMatMul, model(text.format("", "")), "whole numbers")
    refuses(G.GemmToMatMulAdd, model(text.format(", int32[5] c", ", c")), "whole numbers")


def test_matmul_to_gemm():
    check_rule(G.MatMulToGemm, model("(float[3,4] a, float[4,5] b) => (y) { y = MatMul(a, b) }"), becomes=["Gemm"])
    refuses(G.MatMulToGemm, model("(float[2,3,4] a, float[4,5] b) => (y) { y = MatMul(a, b) }"), "not a matrix")


def test_matmul_and_add_to_gemm():
    text = "(float[3,4] a, float[4,5] b, float[{}] c) => (y) {{ t = MatMul(a, b)  y = Add(c, t) }}"
    check_rule(G.MatMulAddToGemm, model(text.format("5")), becomes=["Gemm"])
    check_rule(G.MatMulAddToGemm, model(text.format("3,1")), becomes=["Gemm"])
    refuses(G.MatMulAddToGemm, model(text.format("2,3,5")), "the target gives float[3,5]")
    batched = "(float[2,3,4] a, float[4,5] b, float[5] c) => (y) { t = MatMul(a, b)  y = Add(t, c) }"
    refuses(G.MatMulAddToGemm, model(batched), "not a matrix")


def test_factors_and_transposition_are_folded_into_constants():
    text = "(float[3,4] a) => (y) {{ y = Gemm<{}>(a, w, c) }}"
    graph = model(text.format("alpha=0.5, beta=2.0, transB=1"), w=weights(5, 4), c=weights(5))
    (plain,) = check_rule(G.FoldGemmAttributes, graph, becomes=["Gemm"])
    assert all(not node.attrs for node in plain.nodes.values())
    transposed = model("(float[4,3] a) => (y) { y = Gemm<transA=1, transB=1>(a, w) }", w=weights(5, 4))
    check_rule(G.FoldGemmAttributes, transposed, becomes=["Gemm"])
    refuses(G.FoldGemmAttributes, model(text.format("alpha=1.0"), w=weights(4, 5), c=weights(5)), "nothing to fold")


@pytest.mark.parametrize("flag", [0, 1])
def test_transposes_become_flags(flag):
    left = "4,3" if not flag else "3,4"
    text = f"(float[{left}] a, float[4,5] b) => (y) {{ t = Transpose(a)  y = Gemm<transA={flag}, alpha=2.0>(t, b) }}"
    check_rule(G.TransposeIntoGemmLeft, model(text), becomes=["Gemm"])
    right = "5,4" if not flag else "4,5"
    text = f"(float[3,4] a, float[{right}] b) => (y) {{ t = Transpose<perm=[1,0]>(b)  y = Gemm<transB={flag}>(a, t) }}"
    check_rule(G.TransposeIntoGemmRight, model(text), becomes=["Gemm"])


def test_transpose_that_does_nothing_is_no_flag():
    text = "(float[3,4] a, float[4,5] b) => (y) { t = Transpose<perm=[0,1]>(a)  y = Gemm(t, b) }"
    refuses(G.TransposeIntoGemmLeft, model(text), "does nothing")
    text = "(float[3,4] a, float[4,5] b) => (y) { t = Transpose<perm=[0,1]>(b)  y = Gemm(a, t) }"
    refuses(G.TransposeIntoGemmRight, model(text), "does nothing")


def test_linear_layer_as_gemm_and_back():
    graph = model("(float[2,3,4] x) => (y) { t = MatMul(x, w)  y = Add(t, b) }", w=weights(4, 5), b=weights(5))
    (gemm,) = check_rule(G.LinearToGemm, graph, becomes=["Reshape", "Gemm", "Reshape"])
    (back,) = check_rule(G.GemmToLinear, gemm, becomes=["MatMul", "Add"])
    assert back.hash == graph.hash


def test_linear_layer_conditions():
    text = "(float[{}] x) => (y) {{ t = MatMul(x, w)  y = Add(t, b) }}"
    refuses(G.LinearToGemm, model(text.format("3,4"), w=weights(4, 5), b=weights(5)), "no leading axes")
    refuses(G.LinearToGemm, model(text.format("2,3,4"), w=weights(2, 4, 5), b=weights(5)), "not a matrix")
    refuses(G.LinearToGemm, model(text.format("2,3,4"), w=weights(4, 5), b=weights(3, 1)), "more than the columns")


def test_gemm_between_other_reshapes_stays():
    text = "(float[2,3,4] x) => (y) {{ r = Reshape(x, rows)  t = Gemm<transA={}>(r, w, b)  y = Reshape(t, shape) }}"
    plain, w, b = text.format(0), weights(4, 5), weights(5)
    split = model(plain, rows=[4, 6], w=weights(6, 5), b=b, shape=[2, 2, 5])
    refuses(G.GemmToLinear, split, "more than merge")
    refuses(G.GemmToLinear, model(plain, rows=[6, 4], w=w, b=b, shape=[3, 2, 5]), "more than merge")
    along_rows = model(plain, rows=[6, 4], w=w, b=weights(6, 1), shape=[2, 3, 5])
    refuses(G.GemmToLinear, along_rows, "more than the columns")
    transposed = model(text.format(1), rows=[6, 4], w=weights(6, 5), b=b, shape=[2, 2, 5])
    refuses(G.GemmToLinear, transposed, "transposed")


def test_gemm_with_factors_between_reshapes():
    text = """(float[2,3,4] x) => (y) <int64[2] rows = {6, 4}, int64[3] result = {2, 3, 5}> {
        r = Reshape(x, rows)  t = Gemm<alpha=0.5, beta=2.0, transB=1>(r, w, b)  y = Reshape(t, result)
    }"""
    check_rule(G.GemmToLinear, model(text, w=weights(5, 4), b=weights(5)), becomes=["MatMul", "Add"])


@pytest.mark.parametrize(("rule", "text"), [
    (G.MatMulToGemm, "(int32[3,4] x) => (y) { y = MatMul(x, w) }"),
    (G.MatMulAddToGemm, "(int32[3,4] x) => (y) { t = MatMul(x, w)  y = Add(t, b) }"),
    (G.LinearToGemm, "(int32[2,3,4] x) => (y) { t = MatMul(x, w)  y = Add(t, b) }"),
])  # fmt: skip
def test_products_of_integers_stay(rule, text):
    w, b = np.arange(20, dtype=np.int32).reshape(4, 5), np.arange(5, dtype=np.int32)
    refuses(rule, model(text, w=w, b=b) if "b)" in text else model(text, w=w), "floating-point numbers only")
