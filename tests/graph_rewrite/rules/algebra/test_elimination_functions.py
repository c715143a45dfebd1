"""Elimination of functions: each rule applies where its equation holds and refuses elsewhere."""

import numpy as np
import pytest

from graph_rewrite.rules.algebra import elimination_functions
from graph_rewrite.rules.algebra.elimination_functions import (
    ClipAsRelu,
    ComposeClips,
    DropInvolution,
    DropReluOfNonNegative,
    DropRepeated,
)
from tests.graph_rewrite.rules.checking import Case, untested

ZERO, ONE = np.float32(0), np.float32(1)

APPLIES = [
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
]  # fmt: skip

REFUSED = [
    Case(DropInvolution, "(int32[2] x) => (y) { a = Neg(x) y = BitwiseNot(a) }", "the two functions differ"),
    Case(DropRepeated, "(float[2] x) => (y) { a = Abs(x) y = Sign(a) }", "the two functions differ"),
    Case(ClipAsRelu, "(float[2] x) => (y) { y = Clip(x, a) }", "not 0", {"a": ONE}),
    Case(ClipAsRelu, "(float[2] x) => (y) { y = Clip(x, a, b) }", "an upper bound", {"a": ZERO, "b": ONE}),
    Case(ClipAsRelu, "(int64[2] x) => (y) { y = Clip(x, a) }", "not floating-point", {"a": np.int64(0)}),
    Case(ComposeClips, "(float[2] x, float b) => (y) { a = Clip(x, b) y = Clip(a, c) }", "not constants", {"c": ZERO}),
    Case(ComposeClips, "(float[2] x) => (y) { a = Relu(x) y = Clip(a, b, c) }", "above", {"b": ONE, "c": ZERO}),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    assert untested(elimination_functions.RULES, APPLIES, REFUSED) == []
