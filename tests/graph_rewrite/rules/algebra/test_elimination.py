"""Elimination of operators that do nothing: each rule applies where its equation holds and refuses elsewhere."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.algebra import elimination
from graph_rewrite.rules.algebra.elimination import (
    AddZero,
    ComposeCasts,
    DivOne,
    DropCast,
    DropDropout,
    DropExpand,
    DropIdentity,
    DropPad,
    DropPool,
    DropReduce,
    DropSingleOperand,
    DropWhere,
    MulOne,
    PowOne,
    SubZero,
)
from graph_rewrite.rules.movement.transpose import TransposeAfterBinary
from tests.graph_rewrite.rules.checking import Case, check_rule, model, refuses, untested, weights

ZERO, ONE = np.float32(0), np.float32(1)

APPLIES = [
    Case(DropIdentity, "(float[2,3] x) => (y) { y0 = Identity(x) y = Exp(y0) }", ["Exp"]),
    Case(DropIdentity, "(float[2,3] x) => (y, z) { a = Identity(x) y = Relu(a) z = Exp(a) }", ["Exp", "Relu"]),
    Case(DropDropout, "(float[2,3] x) => (y) { a = Dropout(x, r) y = Relu(a) }", ["Relu"], {"r": np.float32(0.5)}),
    Case(
        DropDropout, "(float[2] x) => (y) { y0 = Dropout(x, r, t) y = Exp(y0) }", ["Exp"],
        {"r": ONE / 2, "t": np.bool_(False)},
    ),
    Case(DropSingleOperand, "(float[2,3] x) => (y) { a = Concat<axis=1>(x) y = Relu(a) }", ["Relu"]),
    Case(DropSingleOperand, "(float[2,3] x) => (y) { a = Sum(x) y = Max(a) }", ["Max"], sites=2),
    Case(DropCast, "(float[2,3] x) => (y) { a = Cast<to=1>(x) y = Relu(a) }", ["Relu"]),
    Case(ComposeCasts, "(float[2,3] x) => (y) { a = Cast<to=11>(x) y0 = Cast<to=1>(a) y = Exp(y0) }", ["Exp"]),
    Case(ComposeCasts, "(bool[4] x) => (y) { a = Cast<to=6>(x) y = Cast<to=1>(a) }", ["Cast"]),
    Case(ComposeCasts, "(int32[4] x) => (y, a) { a = Cast<to=7>(x) y = Cast<to=1>(a) }", ["Cast", "Cast"]),
    Case(AddZero, "(float[2,3] x) => (y) { y0 = Add(x, c) y = Exp(y0) }", ["Exp"], {"c": np.zeros(3)}),
    Case(
        AddZero, "(float[1,1,4,4] m, float[1,2,4,4] x) => (y) { y0 = Add(c, x) y = Exp(y0) }", ["Exp"],
        {"c": np.zeros((1, 1, 4, 4))},
    ),
    Case(AddZero, "(int64[2] x) => (y) { y0 = Add(x, c) y = Abs(y0) }", ["Abs"], {"c": [0]}),
    Case(SubZero, "(float[2,3] x) => (y) { y0 = Sub(x, c) y = Exp(y0) }", ["Exp"], {"c": ZERO}),
    Case(MulOne, "(float[2,3] x) => (y) { y0 = Mul(c, x) y = Exp(y0) }", ["Exp"], {"c": np.ones((2, 1))}),
    Case(DivOne, "(float[2,3] x) => (y) { y0 = Div(x, c) y = Exp(y0) }", ["Exp"], {"c": ONE}),
    Case(PowOne, "(float[2,3] x) => (y) { y0 = Pow(x, c) y = Exp(y0) }", ["Exp"], {"c": ONE}),
    Case(PowOne, "(float[2,3] x) => (y) { y0 = Pow(x, c) y = Exp(y0) }", ["Exp"], {"c": [1]}),
    Case(DropPad, "(float[2,3] x) => (y) { y0 = Pad(x, p) y = Exp(y0) }", ["Exp"], {"p": [0, 0, 0, 0]}),
    Case(
        DropPad, '(float[2,3] x) => (y) { y0 = Pad<mode="edge">(x, p, "", a) y = Exp(y0) }', ["Exp"],
        {"p": [0, 0], "a": [1]},
    ),
    Case(DropExpand, "(float[2,3] x) => (y) { y0 = Expand(x, s) y = Exp(y0) }", ["Exp"], {"s": [1, 3]}),
    Case(
        DropWhere, "(float[2,3] x, float[3] z) => (y) { y0 = Where(c, x, z) y = Exp(y0) }", ["Exp"],
        {"c": np.ones((1, 3), bool)},
    ),
    Case(
        DropWhere, "(float[3] x, float[2,3] z) => (y) { y0 = Where(c, x, z) y = Exp(y0) }", ["Exp"],
        {"c": np.zeros(3, bool)},
    ),
    Case(DropPool, "(float[1,2,4,4] x) => (y) { y0 = MaxPool<kernel_shape=[1,1]>(x) y = Exp(y0) }", ["Exp"]),
    Case(
        DropPool, "(float[1,2,4] x) => (y) { y0 = AveragePool<kernel_shape=[1], strides=[1]>(x) y = Exp(y0) }", ["Exp"],
    ),
    Case(DropReduce, "(float[2,1,3] x) => (y) { y = ReduceMean<keepdims=0>(x, a) }", ["Reshape"], {"a": [1]}),
    Case(DropReduce, "(float[2,1,3] x) => (y) { y0 = ReduceMax(x, a) y = Exp(y0) }", ["Exp"], {"a": [-2]}),
    Case(DropReduce, "(float[2,3] x) => (y) { y0 = ReduceSum<noop_with_empty_axes=1>(x) y = Exp(y0) }", ["Exp"]),
]  # fmt: skip

REFUSED = [
    Case(
        DropDropout, "(float[2] x) => (y) { y = Dropout(x, r, t) }", "training_mode is set",
        {"r": ONE, "t": np.bool_(True)},
    ),
    Case(DropDropout, "(float[2] x, bool t) => (y) { y = Dropout(x, r, t) }", "at run time", {"r": ONE}),
    Case(DropCast, "(float[2] x) => (y) { y = Cast<to=11>(x) }", "the element types differ"),
    Case(
        ComposeCasts, "(float[2] x) => (y) { a = Cast<to=10>(x) y = Cast<to=1>(a) }",
        "float16 does not hold every float",
    ),
    Case(
        ComposeCasts, "(int64[2] x) => (y) { a = Cast<to=11>(x) y = Cast<to=7>(a) }",
        "double does not hold every int64",
    ),
    Case(ComposeCasts, "(int32[2] x) => (y) { a = Cast<to=11>(x) y = Cast<to=8>(a) }", "how a number is written"),
    Case(AddZero, "(float[2,3] x) => (y) { y = Add(x, c) }", "not 0 everywhere", {"c": weights(3)}),
    Case(AddZero, "(float[3] x) => (y) { y = Add(x, c) }", "a larger shape", {"c": np.zeros((2, 3))}),
    Case(MulOne, "(float[3] x) => (y) { y = Mul(x, c) }", "not 1 everywhere", {"c": np.array([1, 1, 2.0])}),
    Case(DropPad, "(float[2,3] x) => (y) { y = Pad(x, p) }", "not all 0", {"p": [0, 0, 1, 0]}),
    Case(DropExpand, "(float[1,3] x) => (y) { y = Expand(x, s) }", "the shape grows", {"s": [2, 3]}),
    Case(
        DropWhere, "(float[2] x, float[2] z) => (y) { y = Where(c, x, z) }", "not the same",
        {"c": np.array([True, False])},
    ),
    Case(
        DropWhere, "(float[1] x, float[2] z) => (y) { y = Where(c, x, z) }", "a larger shape", {"c": np.ones(1, bool)},
    ),
    Case(DropPool, "(float[1,2,4] x) => (y) { y = MaxPool<kernel_shape=[1], strides=[2]>(x) }", "larger than 1"),
    Case(DropReduce, "(float[2,1,3] x) => (y) { y = ReduceSum(x) }", "more than one element"),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    assert untested(elimination.RULES, APPLIES, REFUSED) == []


def test_large_weights_that_search_made_are_not_computed_for_a_condition() -> None:
    graph = model("(float[64,128] x) => (y) { a = Add(x, c) y = Exp(a) }", c=np.zeros((64, 128)))
    check_rule(AddZero, graph, becomes=["Exp"])
    made = model("(float[64,128] x) => (y) { a = Transpose(x) b = Add(a, c) y = Identity(b) }", c=np.zeros((128, 64)))
    moved = Rewriter([TransposeAfterBinary()], deployment=False).candidates(made)[0].apply()
    refuses(AddZero, moved, "not 0 everywhere")
