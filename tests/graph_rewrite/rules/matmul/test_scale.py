"""Scales move into weights, through biases and between operands."""

import numpy as np
import pytest

from graph_rewrite.rules.matmul import scale as S
from tests.graph_rewrite.rules.checking import check_rule, model, refuses, weights

SCALES = [weights(5), np.float32(0.3), weights(1, 1, 1)]
TOLERANCE = 1e-6  # weights are scaled in float32


@pytest.mark.parametrize("s", SCALES)
@pytest.mark.parametrize(("rule", "op"), [(S.FoldScaleAfterMatMul, "Mul"), (S.FoldDivisorAfterMatMul, "Div")])
def test_scale_after_a_product(rule, op, s):
    graph = model(f"(float[2,3,4] x) => (y) {{ t = MatMul(x, w)  y = {op}(t, s) }}", w=weights(4, 5), s=s)
    check_rule(rule, graph, becomes=["MatMul"], rtol=TOLERANCE)


@pytest.mark.parametrize("s", SCALES)
@pytest.mark.parametrize(("rule", "op"), [(S.FoldScaleThroughBias, "Mul"), (S.FoldDivisorThroughBias, "Div")])
def test_scale_through_a_bias(rule, op, s):
    text = f"(float[2,3,4] x) => (y) {{ t = MatMul(x, w)  u = Add(b, t)  y = {op}(u, s) }}"
    check_rule(rule, model(text, w=weights(4, 5), b=weights(5), s=s), becomes=["Add", "MatMul"], rtol=TOLERANCE)


@pytest.mark.parametrize("s", [weights(4), np.float32(0.3)])
@pytest.mark.parametrize(("rule", "op"), [(S.FoldScaleBeforeMatMul, "Mul"), (S.FoldDivisorBeforeMatMul, "Div")])
def test_scale_before_a_product(rule, op, s):
    text = f"(float[2,3,4] x) => (y) {{ t = {op}(x, s)  y = MatMul(t, w) }}"
    check_rule(rule, model(text, w=weights(4, 5), s=s), becomes=["MatMul"], rtol=TOLERANCE)


def test_scales_along_rows_stay():
    after = model("(float[3,4] x) => (y) { t = MatMul(x, w)  y = Mul(t, s) }", w=weights(4, 5), s=weights(3, 1))
    refuses(S.FoldScaleAfterMatMul, after, "more than the columns")
    biased = model(
        "(float[3,4] x) => (y) { t = MatMul(x, w)  u = Add(t, b)  y = Mul(u, s) }",
        w=weights(4, 5), b=weights(5), s=weights(3, 1),
    )  # fmt: skip
    refuses(S.FoldScaleThroughBias, biased, "more than the columns")
    before = model("(float[3,4] x) => (y) { t = Mul(x, s)  y = MatMul(t, w) }", w=weights(4, 5), s=weights(3, 1))
    refuses(S.FoldScaleBeforeMatMul, before, "contracted axis")


INTEGERS = {
    "w": np.arange(16, dtype=np.int32).reshape(4, 4), "b": np.arange(4, dtype=np.int32), "s": np.int32(3),
    "heads": np.array([3, 2, 2]), "k": np.ones((2, 2), dtype=np.int32),
}  # fmt: skip
SCORES = """t = MatMul(x, w)  u = Add(t, b)  r = Reshape(u, heads)  q = Transpose<perm=[1,0,2]>(r)
    p = MatMul(q, k)  y = Div(p, s)"""


@pytest.mark.parametrize(
    ("rule", "body", "operands"),
    [
        (S.FoldDivisorAfterMatMul, "t = MatMul(x, w)  y = Div(t, s)", ["w", "s"]),
        (S.FoldDivisorThroughBias, "t = MatMul(x, w)  u = Add(t, b)  y = Div(u, s)", ["w", "b", "s"]),
        (S.FoldDivisorBeforeMatMul, "t = Div(x, s)  y = MatMul(t, w)", ["w", "s"]),
        (S.FoldScoreDivisorIntoProjection, SCORES, list(INTEGERS)),
    ],
)
def test_integer_division_stays(rule, body, operands):
    graph = model(f"(int32[3,4] x) => (y) {{ {body} }}", **{name: INTEGERS[name] for name in operands})
    refuses(rule, graph, "integer division")


@pytest.mark.parametrize("divisor", [0.0, 1e-45])
@pytest.mark.parametrize(
    ("rule", "body"),
    [
        (S.FoldDivisorAfterMatMul, "t = MatMul(x, w)  y = Div(t, s)"),
        (S.FoldDivisorBeforeMatMul, "t = Div(x, s)  y = MatMul(t, w)"),
    ],
)
def test_quotients_by_zero_do_not_add_up(rule, body, divisor):
    # x w / 0 is an infinity per element; x (w / 0) adds infinities of both signs.
    graph = model(f"(float[3,4] x) => (y) {{ {body} }}", w=weights(4, 4), s=np.array([1, 1, divisor, 1]))
    refuses(rule, graph, "1 / s overflows")


MOTIONS = [
    (S.MoveScaleToLeftOperand, "t = MatMul(a, b)  y = Mul(t, s)"),
    (S.MoveScaleFromLeftOperand, "t = Mul(a, s)  y = MatMul(t, b)"),
    (S.MoveScaleToRightOperand, "t = MatMul(a, b)  y = Mul(s, t)"),
    (S.MoveScaleFromRightOperand, "t = Mul(b, s)  y = MatMul(a, t)"),
]


@pytest.mark.parametrize(("rule", "body"), MOTIONS)
def test_scalar_between_operand_and_product(rule, body):
    graph = model(f"(float[2,3,4] a, float[2,4,5] b) => (y) {{ {body} }}", s=np.full((1, 1), 0.125))
    check_rule(rule, graph, becomes=["MatMul", "Mul"])


def test_scalar_that_can_be_folded_is_not_moved():
    left = {"a": weights(3, 4), "s": np.float32(0.125)}
    right = {"b": weights(4, 5), "s": np.float32(0.125)}
    refuses(
        S.MoveScaleToLeftOperand, model("(float[4,5] b) => (y) { t = MatMul(a, b)  y = Mul(t, s) }", **left), "folded"
    )
    refuses(
        S.MoveScaleToRightOperand, model("(float[3,4] a) => (y) { t = MatMul(a, b)  y = Mul(t, s) }", **right), "folded"
    )
    refuses(
        S.MoveScaleFromLeftOperand,
        model("(float[3,4] a) => (y) { t = Mul(a, s)  y = MatMul(t, b) }", **right),
        "folded",
    )
    refuses(
        S.MoveScaleFromRightOperand,
        model("(float[4,5] b) => (y) { t = Mul(b, s)  y = MatMul(a, t) }", **left),
        "folded",
    )


@pytest.mark.parametrize(
    ("rule", "op"), [(S.FoldScoreScaleIntoProjection, "Mul"), (S.FoldScoreDivisorIntoProjection, "Div")]
)
def test_scale_of_attention_scores_goes_into_the_query_projection(rule, op):
    text = f"""(float[1,3,8] x, float[1,2,4,3] k) => (y) <int64[4] heads = {{1, 3, 2, 4}}> {{
        t = MatMul(x, w)  u = Add(t, b)  r = Reshape(u, heads)  q = Transpose<perm=[0,2,1,3]>(r)
        scores = MatMul(q, k)  y = {op}(scores, s)
    }}"""
    graph = model(text, w=weights(8, 8), b=weights(8), s=np.float32(3.0))
    check_rule(rule, graph, becomes=["Add", "MatMul", "MatMul", "Reshape", "Transpose"], rtol=TOLERANCE)
