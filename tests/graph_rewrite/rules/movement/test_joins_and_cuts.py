"""The algebra of Concat, Split, Slice, Gather and Pad."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.rules.algebra.elimination_shape import ComposeSlices
from graph_rewrite.rules.movement import joins_and_cuts
from graph_rewrite.rules.movement.joins_and_cuts import (
    ComposePads,
    ConcatOfSlices,
    FlattenConcatFirst,
    FlattenConcatSecond,
    GatherAsSlice,
    NestConcatFirst,
    NestConcatLast,
    SlicesAsSplit2,
    SlicesAsSplit3,
    SplitAsSlices2,
    SplitAsSlices3,
    SplitOfSplitFirst,
    SplitOfSplitLast,
)
from tests.graph_rewrite.rules.checking import Case, check_rule, model, untested

APPLIES = [
    Case(
        FlattenConcatFirst,
        "(float[2,1] x, float[2,3] z) => (y) { a = Concat<axis=1>(x, z) y = Concat<axis=-1>(a, z, x) }",
        ["Concat"],
    ),
    Case(
        FlattenConcatFirst, "(float[2] x) => (y, a) { a = Concat<axis=0>(x, x) y = Concat<axis=0>(a) }", ["Concat"] * 2,
        sites=1,
    ),
    Case(
        FlattenConcatSecond,
        "(float[2,1] x, float[2,3] z) => (y) { a = Concat<axis=1>(x, z) y = Concat<axis=1>(z, a, x) }",
        ["Concat"],
    ),
    Case(NestConcatFirst, "(float[2] x, float[1] z) => (y) { y = Concat<axis=0>(x, z, x) }", ["Concat"] * 2),
    Case(NestConcatLast, "(float[2] x, float[1] z) => (y) { y = Concat<axis=-1>(x, z, x, z) }", ["Concat"] * 2),
    Case(
        SplitOfSplitFirst,
        "(float[2,6] x) => (y, z, w) { a, w = Split<axis=1>(x, s) y, z = Split<axis=-1, num_outputs=2>(a) }",
        ["Split"], {"s": [4, 2]},
    ),
    Case(
        SplitOfSplitLast, "(float[6] x) => (y, z, w) { y, a = Split(x, s) b, w = Split(a, t) z = Relu(b) }",
        ["Relu", "Split"], {"s": [1, 5], "t": [2, 3]},
    ),
    Case(
        SlicesAsSplit2, "(float[2,6] x) => (y, z) { y = Slice(x, m, e, d) z = Slice(x, b, m, d) }", ["Split"],
        {"b": [0], "m": [2], "e": [9], "d": [1]},
    ),
    Case(
        SlicesAsSplit3,
        "(float[2,6] x) => (y, z, w) { y = Slice(x, b, m, d) z = Slice(x, n, e, d) w = Slice(x, m, n, d) }",
        ["Split"], {"b": [0], "m": [2], "n": [-1], "e": [6], "d": [-1]},
    ),
    Case(SplitAsSlices2, "(float[2,6] x) => (y, z) { y, z = Split<axis=-1>(x, s) }", ["Slice"] * 2, {"s": [2, 4]}),
    Case(SplitAsSlices3, "(float[7] x) => (y, z, w) { y, z, w = Split<num_outputs=3>(x) }", ["Slice"] * 3),
    Case(GatherAsSlice, "(float[2,6] x) => (y) { y = Gather<axis=1>(x, i) }", ["Slice"], {"i": [1, 3, 5]}),
    Case(
        GatherAsSlice, "(float[2,6] x) => (y) { y = Gather<axis=-1>(x, i) }", ["Reshape", "Slice"], {"i": np.int64(-1)},
    ),
    Case(GatherAsSlice, "(float[6,2] x) => (y) { y = Gather(x, i) }", ["Reshape", "Slice"], {"i": [[3, 2], [1, 0]]}),
    Case(
        ConcatOfSlices,
        "(float[2,6] x, float[2,1] z) => (y) { a = Slice(x, b, m, d) c = Slice(x, m, e, d) y = Concat<axis=1>(a, "
        "c, z) }",
        ["Concat", "Slice"], {"b": [1], "m": [2], "e": [4], "d": [1]},
    ),
    Case(
        ConcatOfSlices,
        "(float[6] x) => (y) { a = Slice(x, b, m) c = Slice(x, m, e) y0 = Concat<axis=0>(a, c) y = Exp(y0) }",
        ["Exp"], {"b": [0], "m": [2], "e": [6]},
    ),
    Case(
        ComposePads, "(float[2,3] x) => (y) { a = Pad(x, p, v) y = Pad(a, q, v, d) }", ["Pad"],
        {"p": [0, 1, 0, 2], "q": [3, 1], "v": np.float32(0.5), "d": [-2]},
    ),
    Case(
        ComposePads, "(float[2] x) => (y) { a = Pad(x, p) y = Pad(a, p, v) }", ["Pad"],
        {"p": [1, 0], "v": np.float32(0)},
    ),
]  # fmt: skip

REFUSED = [
    Case(
        FlattenConcatFirst, "(float[2,2] x) => (y) { a = Concat<axis=0>(x, x) y = Concat<axis=1>(a, a) }",
        "different axes",
    ),
    Case(
        FlattenConcatSecond, "(float[2,2] x) => (y) { a = Concat<axis=0>(x, x) y = Concat<axis=1>(a, a) }",
        "different axes",
    ),
    Case(NestConcatFirst, "(float[2] x) => (y) { y = Concat<axis=0>(x, x) }", "only two operands"),
    Case(NestConcatLast, "(float[2] x) => (y) { y = Concat<axis=0>(x, x) }", "only two operands"),
    Case(
        SplitOfSplitFirst,
        "(float[4,4] x) => (y, z, w) { a, w = Split<num_outputs=2>(x) y, z = Split<axis=1, num_outputs=2>(a) }",
        "different axes",
    ),
    Case(
        SplitOfSplitFirst,
        "(float[4] x) => (y, z, w, a) { a, w = Split<num_outputs=2>(x) y, z = Split<num_outputs=2>(a) }",
        "used elsewhere",
    ),
    Case(
        SlicesAsSplit2, "(float[6] x) => (y, z) { y = Slice(x, b, m) z = Slice(x, n, e) }", "leave a gap",
        {"b": [0], "m": [2], "n": [3], "e": [6]},
    ),
    Case(
        SlicesAsSplit2, "(float[6] x) => (y, z) { y = Slice(x, b, n) z = Slice(x, m, e) }", "overlap",
        {"b": [0], "m": [2], "n": [3], "e": [6]},
    ),
    Case(
        SlicesAsSplit2, "(float[6] x) => (y, z) { y = Slice(x, b, m) z = Slice(x, m, e) }", "at the end",
        {"b": [0], "m": [2], "e": [5]},
    ),
    Case(
        SlicesAsSplit2, "(float[4,4] x) => (y, z) { y = Slice(x, b, m, d) z = Slice(x, m, e, f) }", "different axes",
        {"b": [0], "m": [2], "e": [4], "d": [0], "f": [1]},
    ),
    Case(
        SlicesAsSplit2, "(float[6] x) => (y, z) { y = Slice(x, b, m, d, k) z = Slice(x, m, e) }", "has a step",
        {"b": [0], "m": [3], "e": [6], "d": [0], "k": [2]},
    ),
    Case(GatherAsSlice, "(float[6] x) => (y) { y = Gather(x, i) }", "equal distances", {"i": [0, 1, 3]}),
    Case(GatherAsSlice, "(float[6] x) => (y) { y = Gather(x, i) }", "equal distances", {"i": [2, 2]}),
    Case(GatherAsSlice, "(float[6] x, int64[2] i) => (y) { y = Gather(x, i) }", "not constants"),
    Case(
        ConcatOfSlices, "(float[6] x) => (y) { a = Slice(x, b, m) c = Slice(x, n, e) y = Concat<axis=0>(a, c) }",
        "does not go on", {"b": [0], "m": [2], "n": [3], "e": [6]},
    ),
    Case(
        ConcatOfSlices,
        "(float[4,4] x) => (y) { a = Slice(x, b, m, d) c = Slice(x, m, e, d) y = Concat<axis=1>(a, c) }",
        "along another axis", {"b": [0], "m": [2], "e": [4], "d": [0]},
    ),
    Case(
        ComposePads, "(float[2] x) => (y) { a = Pad(x, p) y = Pad(a, p, v) }", "the values of the pads differ",
        {"p": [1, 0], "v": np.float32(1)},
    ),
    Case(ComposePads, "(float[4] x) => (y) { a = Pad(x, p) y = Pad(a, q) }", "negative", {"p": [-1, 0], "q": [1, 0]}),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    assert untested(joins_and_cuts.RULES, APPLIES, REFUSED) == []


def test_selecting_query_key_and_value_becomes_one_split() -> None:
    """As vision transformers export it: three Gathers with a scalar index."""
    graph = model(
        "(float[3,2,4] x) => (q, k, v) { q = Gather(x, i) k = Gather(x, j) v = Gather(x, l) }",
        i=np.int64(0), j=np.int64(1), l=np.int64(2),
    )  # fmt: skip
    for left in (3, 2, 1):
        graph = check_rule(GatherAsSlice, graph, sites=left)[0]
    check_rule(SlicesAsSplit3, graph, becomes=["Reshape", "Reshape", "Reshape", "Split"])


_BOUND = st.integers(-9, 9)
_STEP = st.sampled_from([-3, -2, -1, 1, 2, 3])


@given(_BOUND, _BOUND, _STEP, _BOUND, _BOUND, _STEP)
def test_slices_of_slices_compose_for_any_bounds(a: int, b: int, k: int, c: int, d: int, n: int) -> None:
    if not (inner := range(6)[a:b:k]) or not inner[c:d:n]:
        return
    graph = model(
        "(float[2,6] x) => (y) { t = Slice(x, a, b, axis, k) y = Slice(t, c, d, axis, n) }",
        axis=[1], a=[a], b=[b], k=[k], c=[c], d=[d], n=[n],
    )  # fmt: skip
    check_rule(ComposeSlices, graph)
