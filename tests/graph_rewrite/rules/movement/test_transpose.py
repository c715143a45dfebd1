"""Movement of Transpose: outputs stay, inverses come back, and what cannot move is refused."""

import numpy as np
import pytest

from graph_rewrite.rules.algebra.elimination_shape import ComposeTransposes
from graph_rewrite.rules.movement import transpose as movement
from graph_rewrite.rules.movement.transpose import (
    MatMulOfTransposes,
    TransposeAfterBinary,
    TransposeAfterNormalisation,
    TransposeAfterSplit2,
    TransposeAfterSplit3,
    TransposeAfterUnary,
    TransposeBeforeBinary,
    TransposeBeforeConcat,
    TransposeBeforeNormalisation,
    TransposeBeforeUnary,
    TransposeOfMatMul,
    TransposesAfterBinary,
    TransposesAfterConcat,
    TransposesAfterConcat3,
    TransposesBeforeSplit2,
    TransposesBeforeSplit3,
)
from tests.graph_rewrite.rules.checking import Case, check_rule, model, untested, weights

APPLIES = [
    Case(TransposeAfterUnary, "(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) y = Gelu(a) }"),
    Case(
        TransposeAfterUnary, "(float[2,3] x) => (y) { a = Transpose(x) y = Clip(a, c) }", None, {"c": np.float32(0.2)},
    ),
    Case(TransposeAfterUnary, "(float[2,3] x) => (y) { a = Transpose(x) y = Cast<to=7>(a) }"),
    Case(TransposeBeforeUnary, "(float[2,3] x) => (y) { a = LeakyRelu<alpha=0.3>(x) y = Transpose(a) }"),
    Case(
        TransposesAfterBinary,
        "(float[2,3,4] x, float[1,3,1] z) => (y) { a = Transpose(x) b = Transpose<perm=[2,1,0]>(z) y = Sub(a, b) }",
        ["Sub", "Transpose"],
    ),
    Case(
        TransposeAfterBinary, "(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) y = Div(c, a) }",
        ["Div", "Transpose"], {"c": weights(3)},
    ),
    Case(
        TransposeAfterBinary, "(float[2,3,4] x, float[1] c) => (y) { a = Transpose(x) y = Sub(c, a) }",
        ["Sub", "Transpose"],
    ),
    Case(TransposeAfterBinary, "(float[2,3] x) => (y) { a = Transpose(x) y = Add(a, c) }", None, {"c": weights(3, 2)}),
    Case(
        TransposeBeforeBinary, "(float[2,3,4] x) => (y) { a = Pow(x, c) y = Transpose<perm=[0,2,1]>(a) }",
        ["Pow", "Transpose"], {"c": np.array([2, 3, 1, 4.0])},
    ),
    Case(
        TransposeBeforeBinary, "(float[2,3] x, float[1,3] z) => (y) { a = Less(x, z) y = Transpose(a) }",
        ["Less", "Transpose", "Transpose"],
    ),
    Case(
        TransposesAfterConcat,
        "(float[2,3] x, float[2,1] z) => (y) { a = Transpose(x) b = Transpose(z) y = Concat<axis=-2>(a, b) }",
        ["Concat", "Transpose"],
    ),
    Case(
        TransposesAfterConcat3,
        "(float[2,3,1] x) => (y) { a = Transpose<perm=[1,2,0]>(x) y = Concat<axis=1>(a, a, a) }",
        ["Concat", "Transpose"],
    ),
    Case(
        TransposesAfterConcat3,
        """(float[2,3,1] x, float[2,3,2] z) => (y) { a = Transpose<perm=[1,2,0]>(x) b = Transpose<perm=[1,2,0]>(z)
        c = Transpose<perm=[1,2,0]>(x) y = Concat<axis=1>(a, b, c) }""",
        ["Concat", "Transpose"],
    ),
    Case(
        TransposeBeforeConcat,
        "(float[2,3,1] x, float[2,3,2] z) => (y) { a = Concat<axis=-1>(x, z, x) y = Transpose<perm=[1,2,0]>(a) }",
        ["Concat", "Transpose", "Transpose"],
    ),
    Case(
        TransposeAfterSplit2, "(float[2,3,4] x) => (y, z) { a = Transpose<perm=[2,0,1]>(x) y, z = Split(a, s) }",
        ["Split", "Transpose", "Transpose"], {"s": [1, 3]},
    ),
    Case(
        TransposeAfterSplit3,
        "(float[2,6] x) => (y, z, w) { a = Transpose(x) y, z, w = Split<axis=-2, num_outputs=3>(a) }",
        ["Split", "Transpose", "Transpose", "Transpose"],
    ),
    Case(
        TransposesBeforeSplit2,
        """(float[2,3,4] x) => (y, z) { a, b = Split<axis=1>(x, s)
        y = Transpose<perm=[1,2,0]>(a) z = Transpose<perm=[1,2,0]>(b) }""",
        ["Split", "Transpose"], {"s": [1, 2]},
    ),
    Case(
        TransposesBeforeSplit3,
        """(float[6,2] x) => (y, z, w) { a, b, c = Split<num_outputs=3>(x)
        y = Transpose(a) z = Transpose(b) w = Transpose(c) }""",
        ["Split", "Transpose"],
    ),
    Case(
        TransposeAfterNormalisation,
        "(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) y = Softmax<axis=-2>(a) }",
    ),
    Case(
        TransposeAfterNormalisation,
        "(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) y = LogSoftmax<axis=0>(a) }",
    ),
    Case(
        TransposeAfterNormalisation,
        "(float[2,3,4] x) => (y) { a = Transpose<perm=[1,0,2]>(x) y = LayerNormalization<epsilon=0.01>(a, s, b) }",
        ["LayerNormalization", "Transpose"], {"s": weights(4), "b": weights(4, seed=1)},
    ),
    Case(TransposeBeforeNormalisation, "(float[2,3,4] x) => (y) { a = Softmax(x) y = Transpose<perm=[2,0,1]>(a) }"),
    Case(
        TransposeBeforeNormalisation,
        "(float[2,3,4,5] x) => (y) { a = LayerNormalization<axis=2>(x, s) y = Transpose<perm=[1,0,2,3]>(a) }",
        ["LayerNormalization", "Transpose"], {"s": weights(4, 5)},
    ),
    Case(
        MatMulOfTransposes,
        "(float[4,3] b, float[2,5,4] a) => (y) { s = Transpose(b) t = Transpose<perm=[0,2,1]>(a) y = MatMul(s, t) }",
        ["MatMul", "Transpose"],
    ),
    Case(
        TransposeOfMatMul, "(float[2,5,4] a) => (y) { t = MatMul(a, w) y = Transpose<perm=[0,2,1]>(t) }",
        ["MatMul", "Transpose"], {"w": weights(4, 3)},
    ),
]  # fmt: skip

REFUSED = [
    Case(
        TransposesAfterBinary,
        "(float[2,2,2] x) => (y) { a = Transpose<perm=[1,0,2]>(x) b = Transpose<perm=[0,2,1]>(x) y = Add(a, b) }",
        "the permutations differ",
    ),
    Case(
        TransposesAfterBinary,
        "(float[2,3,3] x, float[2,3] z) => (y) { a = Transpose(x) b = Transpose(z) y = Add(a, b) }",
        "different ranks",
    ),
    Case(TransposeAfterBinary, "(float[2,3] x, float[2] z) => (y) { a = Transpose(x) y = Add(a, z) }", "not constant"),
    Case(TransposeBeforeBinary, "(float[2,3] x, float[3] z) => (y) { a = Add(x, z) y = Transpose(a) }", "lower rank"),
    Case(
        TransposeAfterNormalisation,
        "(float[2,3,4] x) => (y) { a = Transpose<perm=[0,2,1]>(x) y = LayerNormalization(a, s) }",
        "do not stay the last ones", {"s": weights(3)},
    ),
    Case(
        TransposeAfterNormalisation, "(float[2,3] x) => (y) { a = Transpose(x) y = Softmax(a) }", "before opset 13",
        opset=11,
    ),
    Case(
        TransposeBeforeNormalisation,
        "(float[2,3,4] x) => (y) { a = LayerNormalization<axis=1>(x, s) y = Transpose<perm=[0,2,1]>(a) }",
        "do not stay the last ones", {"s": weights(3, 4)},
    ),
    Case(
        TransposeAfterNormalisation,
        "(float[2,3,4] x) => (y) { a = Transpose<perm=[1,0,2]>(x) y = LayerNormalization(a, s) }",
        "more than the normalised axes", {"s": weights(2, 4)},
    ),
    Case(
        MatMulOfTransposes,
        "(float[4,2,3] b, float[2,3,4] a) => (y) { s = Transpose<perm=[1,2,0]>(b) t = Transpose<perm=[0,2,1]>(a) y "
        "= MatMul(s, t) }",
        "more than exchange",
    ),
    Case(TransposeOfMatMul, "(float[2,3] a, float[3] b) => (y) { t = MatMul(a, b) y = Transpose(t) }", "a vector"),
    Case(
        TransposeOfMatMul, "(float[2,3,4] a, float[4,5] b) => (y) { t = MatMul(a, b) y = Transpose(t) }",
        "more than exchange",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    assert untested(movement.RULES, APPLIES, REFUSED) == []


@pytest.mark.parametrize(
    ("forward", "backward", "text", "constants"),
    [
        (
            TransposeAfterUnary, TransposeBeforeUnary,
            "(float[2,3] x) => (y) { a = Transpose<perm=[1,0]>(x) y = Relu(a) }", {},
        ),
        (
            TransposeAfterBinary, TransposeBeforeBinary,
            "(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) y = Add(a, c) }", {"c": weights(3)},
        ),
        (
            TransposeBeforeNormalisation, TransposeAfterNormalisation,
            "(float[2,3,4] x) => (y) { a = Softmax<axis=-1>(x) y = Transpose<perm=[2,0,1]>(a) }", {},
        ),
        (
            MatMulOfTransposes, TransposeOfMatMul,
            """(float[4,3] b, float[5,4] a) => (y) { s = Transpose<perm=[1,0]>(b) t = Transpose<perm=[1,0]>(a)
            y = MatMul(s, t) }""", {},
        ),
    ],
)  # fmt: skip
def test_a_move_and_its_inverse_give_the_graph_they_started_from(forward, backward, text, constants) -> None:
    graph = model(text, **constants)
    moved = check_rule(forward, graph)[0]
    assert moved.hash != graph.hash
    assert check_rule(backward, moved)[0].hash == graph.hash


def test_a_transpose_sinks_through_a_chain_and_meets_its_inverse() -> None:
    graph = model(
        """(float[2,3,4] x) => (y) { a = Transpose<perm=[2,0,1]>(x) b = Add(a, c) d = Relu(b) e = Softmax<axis=0>(d)
        y = Transpose<perm=[1,2,0]>(e) }""",
        c=weights(4, 1, 1),
    )
    for rule in (TransposeAfterBinary, TransposeAfterUnary, TransposeAfterNormalisation):
        graph = check_rule(rule, graph)[0]
    check_rule(ComposeTransposes, graph, becomes=["Add", "Relu", "Softmax"])
