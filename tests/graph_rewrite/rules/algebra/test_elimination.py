"""Elimination: each rule applies where its equation holds, keeps the outputs, and refuses where it does not."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.algebra import elimination, elimination_functions, elimination_shape
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
from graph_rewrite.rules.algebra.elimination_functions import (
    ClipAsRelu,
    ComposeClips,
    DropInvolution,
    DropReluOfNonNegative,
    DropRepeated,
)
from graph_rewrite.rules.algebra.elimination_shape import (
    AsReshape,
    ComposeReshapes,
    ComposeSlices,
    ComposeTransposes,
    ConcatOfSplit2,
    ConcatOfSplit3,
    DropReshape,
    DropSlice,
    DropTranspose,
    SliceOfConcat,
    SplitOfConcat2,
    SplitOfConcat3,
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
    Case(DropInvolution, "(float[2,3] x) => (y) { a = Neg(x) y0 = Neg(a) y = Exp(y0) }", ["Exp"]),
    Case(
        DropInvolution, "(bool[4] x) => (y, a) { a0 = Not(x) y0 = Not(a0) y = Cast<to=1>(y0) a = Cast<to=1>(a0) }",
        ["Cast", "Cast", "Not"],
    ),
    Case(DropRepeated, "(float[2,3] x) => (y) { a = Relu(x) y = Relu(a) }", ["Relu"]),
    Case(
        DropRepeated, "(float[2,3] x) => (y, a) { a0 = Floor(x) y0 = Floor(a0) y = Exp(y0) a = Exp(a0) }",
        ["Exp", "Exp", "Floor"],
    ),
    Case(DropReluOfNonNegative, "(float[2,3] x) => (y) { a = Softmax<axis=0>(x) y = Relu(a) }", ["Softmax"]),
    Case(
        DropReluOfNonNegative, "(float[2,3] x) => (y, a) { a0 = Sigmoid(x) y0 = Relu(a0) y = Exp(y0) a = Exp(a0) }",
        ["Exp", "Exp", "Sigmoid"],
    ),
    Case(ClipAsRelu, "(float[2,3] x) => (y) { y = Clip(x, low) }", ["Relu"], {"low": ZERO}),
    Case(ClipAsRelu, "(float[2] x) => (y) { y = Clip(x, a, b) }", ["Relu"], {"a": ZERO, "b": np.float32(np.inf)}),
    Case(
        ComposeClips, "(float[2,9] x) => (y) { a = Clip(x, p, q) y = Clip(a, r) }", ["Clip"],
        {"p": np.float32(-0.9), "q": np.float32(0.5), "r": np.float32(-0.3)},
    ),
    Case(
        ComposeClips, "(float[2,9] x) => (y) { a = Clip(x, p) y = Clip(a, p, q) }", ["Clip"],
        {"p": np.float32(-0.4), "q": np.float32(0.3)},
    ),
    Case(
        ComposeClips, "(float[2,9] x) => (y) { a = Clip(x, p, q) y = Clip(a, r, s) }", ["Clip"],
        {"p": np.float32(-0.9), "q": np.float32(-0.5), "r": np.float32(0.1), "s": np.float32(0.2)},
    ),
    Case(
        ComposeClips, "(float[2,9] x) => (y) { a = Relu(x) y = Clip(a, p, q) }", ["Clip"],
        {"p": np.float32(-1), "q": np.float32(0.6)},
    ),
    Case(DropTranspose, "(float[2,3] x) => (y) { y0 = Transpose<perm=[0,1]>(x) y = Exp(y0) }", ["Exp"]),
    Case(DropTranspose, "(float[3] x) => (y) { y0 = Transpose(x) y = Exp(y0) }", ["Exp"]),
    Case(
        ComposeTransposes, "(float[2,3] x) => (y) { a = Transpose(x) y0 = Transpose<perm=[1,0]>(a) y = Exp(y0) }",
        ["Exp"],
    ),
    Case(
        ComposeTransposes,
        "(float[2,3,4] x) => (y, a) { a = Transpose<perm=[1,2,0]>(x) y = Transpose<perm=[0,2,1]>(a) }",
        ["Transpose", "Transpose"],
    ),
    Case(DropReshape, "(float[2,3] x) => (y) { y0 = Reshape(x, s) y = Exp(y0) }", ["Exp"], {"s": [0, -1]}),
    Case(DropReshape, "(float[2,3] x) => (y) { a = Flatten(x) y = Relu(a) }", ["Relu"]),
    Case(
        ComposeReshapes, "(float[2,3,4] x) => (y) { a = Reshape(x, s) y = Reshape(a, t) }", ["Reshape"],
        {"s": [6, 4], "t": [2, -1]},
    ),
    Case(
        ComposeReshapes, "(float[2,3] x) => (y) { a = Unsqueeze(x, s) y0 = Squeeze(a, s) y = Exp(y0) }", ["Exp"],
        {"s": [1]},
    ),
    Case(
        ComposeReshapes, "(float[2,1,3] x) => (y, a) { a = Squeeze(x) y = Flatten<axis=0>(a) }", ["Reshape", "Squeeze"],
    ),
    Case(
        ComposeReshapes, "(float[0,3] x) => (y) { a = Reshape<allowzero=1>(x, s) y = Unsqueeze(a, t) }", ["Reshape"],
        {"s": [3, 0, 2], "t": [1]},
    ),
    Case(AsReshape, "(float[2,3,4] x) => (y) { y = Flatten<axis=-1>(x) }", ["Reshape"]),
    Case(AsReshape, "(float[2,3] x) => (y) { y = Unsqueeze(x, s) }", ["Reshape"], {"s": [0, -1]}),
    Case(AsReshape, "(float[1,3,1] x) => (y) { y = Squeeze(x) }", ["Reshape"]),
    Case(
        SplitOfConcat2,
        "(float[2,1] x, float[2,2] z) => (y, w) { a = Concat<axis=1>(x, z) b, w0 = Split<axis=-1>(a, s) y0 = "
        "Relu(b) y = Exp(y0) w = Exp(w0) }",
        ["Exp", "Exp", "Relu"], {"s": [1, 2]},
    ),
    Case(
        SplitOfConcat2,
        "(float[2,1] x, float[2,2] z) => (y, w, a) { a0 = Concat<axis=1>(x, z, x) y0, w0 = Split<axis=1>(a0, s) y "
        "= Exp(y0) w = Exp(w0) a = Exp(a0) }",
        ["Concat", "Concat", "Exp", "Exp", "Exp"], {"s": [3, 1]},
    ),
    Case(
        SplitOfConcat3,
        "(float[2] x, float[2] z, float[2] v) => (a, b, c) { t = Concat<axis=0>(x, z, v) a0, b0, c0 = "
        "Split<num_outputs=3>(t) a = Exp(a0) b = Exp(b0) c = Exp(c0) }",
        ["Exp", "Exp", "Exp"],
    ),
    Case(
        ConcatOfSplit2, "(float[3,2] x) => (y) { a, b = Split<num_outputs=2>(x) c = Concat<axis=0>(a, b) y = Relu(c) }",
        ["Relu"],
    ),
    Case(
        ConcatOfSplit3,
        "(float[2,6] x) => (y, a) { a0, b, c = Split<axis=1>(x, s) y0 = Concat<axis=-1>(a0, b, c) y = Exp(y0) a = "
        "Exp(a0) }",
        ["Exp", "Exp", "Split"], {"s": [1, 2, 3]},
    ),
    Case(
        DropSlice, "(float[2,3] x) => (y) { y0 = Slice(x, s, e) y = Exp(y0) }", ["Exp"], {"s": [0, -3], "e": [2, 100]},
    ),
    Case(
        ComposeSlices, "(float[2,9] x) => (y) { a = Slice(x, s, e, d) y = Slice(a, t, f, d, k) }", ["Slice"],
        {"s": [1], "e": [-1], "d": [1], "t": [-1], "f": [-100], "k": [-2]},
    ),
    Case(
        ComposeSlices, "(float[4,9] x) => (y) { a = Slice(x, s, e, d) y = Slice(a, t, f, g) }", ["Slice"],
        {"s": [1], "e": [3], "d": [0], "t": [2], "f": [6], "g": [-1]},
    ),
    Case(
        ComposeSlices, "(float[9] x) => (y) { a = Slice(x, s, e, d, k) y0 = Slice(a, s, e, d, k) y = Exp(y0) }",
        ["Exp"], {"s": [100], "e": [-100], "d": [0], "k": [-1]},
    ),
    Case(
        SliceOfConcat, "(float[2,3] x, float[2,4] z) => (y) { a = Concat<axis=1>(x, z) y = Slice(a, s, e, d) }",
        ["Slice"], {"s": [4], "e": [6], "d": [1]},
    ),
    Case(
        SliceOfConcat, "(float[2,3] x, float[2,4] z) => (y) { a = Concat<axis=-1>(x, z, x) y = Slice(a, s, e) }",
        ["Concat", "Slice", "Slice"], {"s": [1, 5], "e": [2, 10]},
    ),
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
    Case(DropInvolution, "(int32[2] x) => (y) { a = Neg(x) y = BitwiseNot(a) }", "the two functions differ"),
    Case(DropRepeated, "(float[2] x) => (y) { a = Abs(x) y = Sign(a) }", "the two functions differ"),
    Case(ClipAsRelu, "(float[2] x) => (y) { y = Clip(x, a) }", "not 0", {"a": ONE}),
    Case(ClipAsRelu, "(float[2] x) => (y) { y = Clip(x, a, b) }", "an upper bound", {"a": ZERO, "b": ONE}),
    Case(ClipAsRelu, "(int64[2] x) => (y) { y = Clip(x, a) }", "not floating-point", {"a": np.int64(0)}),
    Case(ComposeClips, "(float[2] x, float b) => (y) { a = Clip(x, b) y = Clip(a, c) }", "not constants", {"c": ZERO}),
    Case(ComposeClips, "(float[2] x) => (y) { a = Relu(x) y = Clip(a, b, c) }", "above", {"b": ONE, "c": ZERO}),
    Case(DropTranspose, "(float[2,3] x) => (y) { y = Transpose(x) }", "moves an axis"),
    Case(DropReshape, "(float[2,3] x) => (y) { y = Reshape(x, s) }", "the shape changes", {"s": [6]}),
    Case(
        SplitOfConcat2, "(float[2] x, float[2] z) => (y, w) { a = Concat<axis=0>(x, z) y, w = Split(a, s) }",
        "lies across two operands", {"s": [1, 3]},
    ),
    Case(
        SplitOfConcat2, "(float[2,2] x) => (y, w) { a = Concat<axis=1>(x, x) y, w = Split<axis=0, num_outputs=2>(a) }",
        "different axes",
    ),
    Case(
        ConcatOfSplit2, "(float[2,2] x) => (y) { a, b = Split<num_outputs=2>(x) y = Concat<axis=1>(a, b) }",
        "different axes",
    ),
    Case(
        DropSlice, "(float[4] x) => (y) { y = Slice(x, s, e, d, k) }", "a step is not 1",
        {"s": [-1], "e": [-9], "d": [0], "k": [-1]},
    ),
    Case(DropSlice, "(float[4] x) => (y) { y = Slice(x, s, e) }", "leaves something out", {"s": [1], "e": [9]}),
    Case(
        ComposeSlices, "(float[4] x, int64[1] s) => (float[2] y) { a = Slice(x, z, e) y = Slice(a, s, e) }",
        "not constants", {"z": [0], "e": [3]},
    ),
    Case(
        SliceOfConcat, "(float[2] x, float[2] z) => (y) { a = Concat<axis=0>(x, z) y = Slice(a, s, e) }",
        "touches every operand", {"s": [1], "e": [3]},
    ),
    Case(
        SliceOfConcat, "(float[2] x, float[2] z) => (y) { a = Concat<axis=0>(x, z) y = Slice(a, s, e, d, k) }",
        "its step along", {"s": [0], "e": [2], "d": [0], "k": [2]},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    rules = (*elimination.RULES, *elimination_functions.RULES, *elimination_shape.RULES)
    assert untested(rules, APPLIES, REFUSED) == []


def test_parts_of_a_split_that_are_not_used_do_not_matter() -> None:
    graph = model("(float[4] x) => (y) { a = Concat<axis=0>(x, x) b, unused = Split<num_outputs=2>(a) y = Exp(b) }")
    check_rule(SplitOfConcat2, graph, becomes=["Exp"])


def test_large_weights_that_search_made_are_not_computed_for_a_condition() -> None:
    graph = model("(float[64,128] x) => (y) { a = Add(x, c) y = Exp(a) }", c=np.zeros((64, 128)))
    check_rule(AddZero, graph, becomes=["Exp"])
    made = model("(float[64,128] x) => (y) { a = Transpose(x) b = Add(a, c) y = Identity(b) }", c=np.zeros((128, 64)))
    moved = Rewriter([TransposeAfterBinary()], deployment=False).candidates(made)[0].apply()
    refuses(AddZero, moved, "not 0 everywhere")
