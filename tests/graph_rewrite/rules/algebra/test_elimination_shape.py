"""Elimination of moves: each rule applies where its equation holds and refuses elsewhere."""

import pytest

from graph_rewrite.rules.algebra import elimination_shape
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
from tests.graph_rewrite.rules.checking import Case, check_rule, model, untested

APPLIES = [
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
    assert untested(elimination_shape.RULES, APPLIES, REFUSED) == []


def test_parts_of_a_split_that_are_not_used_do_not_matter() -> None:
    graph = model("(float[4] x) => (y) { a = Concat<axis=0>(x, x) b, unused = Split<num_outputs=2>(a) y = Exp(b) }")
    check_rule(SplitOfConcat2, graph, becomes=["Exp"])
