"""Element-wise algebra, and element-wise operators past Concat, Split and Slice."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.rules.algebra import elementwise, elementwise_concat
from graph_rewrite.rules.algebra.elementwise import (
    AddOfNeg,
    AddsAsSum,
    AddToSum,
    Distribute,
    DivAsMul,
    DivOfOne,
    Factor,
    FactorDivisor,
    HardSwishAsMul,
    MulAsHardSwish,
    MulOfReciprocal,
    PowAsProduct,
    PowAsRoot,
    Reassociate,
    SquareAsPow,
    SubAsAdd,
    SubOfNeg,
    SumAsAdds,
)
from graph_rewrite.rules.algebra.elementwise_concat import (
    BinaryAfterConcat,
    BinaryAfterConcats,
    ConstantsAfterSplit2,
    ConstantsAfterSplit3,
    UnaryAfterConcat,
    UnaryAfterSlice,
    UnaryAfterSplit2,
    UnaryAfterSplit3,
    UnaryBeforeConcat2,
    UnaryBeforeConcat3,
    UnaryBeforeSlice,
    UnaryBeforeSplit2,
    UnaryBeforeSplit3,
)
from tests.graph_rewrite.rules.checking import Array, Case, check_rule, model, ops, untested, weights

FOLDED = 1e-6
"""Constants that a rule computes are float32, also where the check runs in float64."""


def scalar(value: float) -> Array:
    return np.array(value, dtype=np.float32)


APPLIES = [
    Case(
        Reassociate, "(float[2,3] a, float[3] b, float[2,1] c) => (y) { t = Add(a, b) y = Add(t, c) }", ["Add"] * 2,
        sites=2,
    ),
    Case(
        Reassociate, "(float[2,3] a) => (y) { t = Mul(b, a) y = Mul(c, t) }", None,
        {"b": weights(3), "c": weights(2, 1)}, sites=2, rtol=FOLDED,
    ),
    Case(
        Factor, "(float[2,3] a, float[3] b, float[2,1] c) => (y) { s = Mul(a, c) t = Mul(c, b) y = Sub(s, t) }",
        ["Mul", "Sub"],
    ),
    Case(
        Distribute, "(float[2,3] a, float[2,1] c) => (y) { s = Sub(b, a) y = Mul(c, s) }", ["Mul", "Mul", "Sub"],
        {"b": weights(3)},
    ),
    Case(
        Distribute, "(float[2,3] a) => (y) { s = Add(a, b) y = Mul(s, c) }", ["Add", "Mul"],
        {"b": weights(3), "c": scalar(0.5)},
    ),
    Case(
        FactorDivisor, "(float[2,3] a, float[3] b, float[3] c) => (y) { s = Div(a, c) t = Div(b, c) y = Add(s, t) }",
        ["Add", "Div"],
    ),
    Case(DivAsMul, "(float[2,3] x) => (y) { y = Div(x, c) }", ["Mul"], {"c": scalar(8)}),
    Case(DivAsMul, "(float[2,3] x) => (y) { y = Div(x, c) }", ["Mul"], {"c": weights(3)}, rtol=FOLDED),
    Case(SubAsAdd, "(float[2,3] x) => (y) { y = Sub(x, c) }", ["Add"], {"c": weights(3)}),
    Case(SubAsAdd, "(int64[2] x) => (y) { y = Sub(x, c) }", ["Add"], {"c": [3, -4]}),
    Case(AddOfNeg, "(float[2,3] x, float[3] z) => (y) { t = Neg(z) y = Add(t, x) }", ["Sub"]),
    Case(SubOfNeg, "(float[2,3] x, float[3] z) => (y) { t = Neg(z) y = Sub(x, t) }", ["Add"]),
    Case(SquareAsPow, "(float[2,3] x) => (y) { y = Mul(x, x) }", ["Pow"]),
    Case(PowAsProduct, "(float[2,3] x) => (y) { y = Pow(x, c) }", ["Mul"], {"c": scalar(2)}),
    Case(PowAsProduct, "(float[2,3] x) => (y) { y = Pow(x, c) }", ["Mul", "Mul"], {"c": [3]}),
    Case(PowAsRoot, "(float[2,3] x) => (y) { a = Abs(x) y = Pow(a, c) }", ["Abs", "Sqrt"], {"c": scalar(0.5)}),
    Case(
        PowAsRoot, "(float[2,3] x) => (y) { a = Exp(x) y = Pow(a, c) }", ["Exp", "Reciprocal", "Sqrt"],
        {"c": scalar(-0.5)},
    ),
    Case(PowAsRoot, "(float[2,3] x) => (y) { a = Exp(x) y = Pow(a, c) }", ["Exp", "Reciprocal"], {"c": scalar(-1)}),
    Case(DivOfOne, "(float[2,3] x) => (y) { y = Div(c, x) }", ["Reciprocal"], {"c": scalar(1)}),
    Case(MulOfReciprocal, "(float[2,3] x, float[3] z) => (y) { t = Reciprocal(z) y = Mul(t, x) }", ["Div"]),
    Case(
        MulAsHardSwish, "(float[2,9] x) => (y) { t = HardSigmoid<alpha=0.16666667, beta=0.5>(x) y = Mul(t, x) }",
        ["HardSwish"], rtol=FOLDED,
    ),
    Case(HardSwishAsMul, "(float[2,9] x) => (y) { y = HardSwish(x) }", ["HardSigmoid", "Mul"], rtol=FOLDED),
    Case(AddsAsSum, "(float[2,3] a, float[3] b, float[2,1] c) => (y) { t = Add(a, b) y = Add(c, t) }", ["Sum"]),
    Case(AddToSum, "(float[2,3] a, float[3] b, float[2,1] c) => (y) { t = Sum(a, b) y = Add(c, t) }", ["Sum"]),
    Case(SumAsAdds, "(float[2,3] a, float[3] b, float[2,1] c) => (y) { y = Sum(a, b, c, a) }", ["Add"] * 3),
    Case(
        UnaryAfterConcat, "(float[2,1] x, float[2,3] z) => (y) { a = Concat<axis=-1>(x, z, x) y = Clip(a, c) }",
        ["Clip", "Clip", "Concat"], {"c": scalar(0)},
    ),
    Case(
        UnaryBeforeConcat2, "(float[2,1] x, float[2,3] z) => (y) { a = Elu(x) b = Elu(z) y = Concat<axis=1>(a, b) }",
        ["Concat", "Elu"],
    ),
    Case(
        UnaryBeforeConcat3,
        "(float[1] x, float[2] z) => (y) { a = Clip(x, c) b = Clip(z, c) d = Clip(x, c) y = Concat<axis=0>(a, b, d) }",
        ["Clip", "Concat"], {"c": scalar(0)},
    ),
    Case(
        UnaryAfterSplit2, "(float[2,4] x) => (y, z) { a, b = Split<axis=1>(x, s) y = Relu(a) z = Relu(b) }",
        ["Relu", "Split"], {"s": [1, 3]},
    ),
    Case(
        UnaryAfterSplit3,
        "(float[6] x) => (y, z, w) { a, b, c = Split<num_outputs=3>(x) y = Exp(a) z = Exp(b) w = Exp(c) }",
        ["Exp", "Split"],
    ),
    Case(
        UnaryBeforeSplit2, "(float[2,4] x) => (y, z) { a = Cast<to=7>(x) y, z = Split<axis=-1>(a, s) }",
        ["Cast", "Cast", "Split"], {"s": [1, 3]},
    ),
    Case(
        UnaryBeforeSplit3, "(float[6] x) => (y, z, w) { a = Tanh(x) y, z, w = Split<num_outputs=3>(a) }",
        ["Split"] + ["Tanh"] * 3,
    ),
    Case(
        UnaryBeforeSlice, "(float[6] x) => (y) { a = Tanh(x) y = Slice(a, s, e) }", ["Slice", "Tanh"],
        {"s": [1], "e": [3]},
    ),
    Case(UnaryBeforeSlice, "(float[2,6] x) => (y) { a = Tanh(x) y = Gather<axis=1>(a, i) }", None, {"i": [[1, -1]]}),
    Case(
        UnaryAfterSlice, "(float[6] x) => (y) { a = Slice(x, s, e) y = Tanh(a) }", ["Slice", "Tanh"],
        {"s": [1], "e": [3]},
    ),
    Case(
        UnaryAfterSlice, "(int64[2,3] i) => (y) { a = Gather(w, i) y = Sqrt(a) }", ["Gather"],
        {"w": np.arange(8.0).reshape(4, 2)}, rtol=FOLDED,
    ),
    Case(
        BinaryAfterConcats,
        """(float[2,1] a, float[2,3] b, float[1,1] c, float[2,3] d) => (y)
        { s = Concat<axis=1>(a, b) e = Expand(c, t) u = Concat<axis=-1>(e, d) y = Sub(s, u) }""",
        ["Concat", "Expand", "Sub", "Sub"], {"t": [2, 1]},
    ),
    Case(
        BinaryAfterConcat, "(float[2,1] a, float[2,3] b) => (y) { s = Concat<axis=1>(a, b) y = Sub(c, s) }",
        ["Concat", "Sub", "Sub"], {"c": weights(4)},
    ),
    Case(
        BinaryAfterConcat, "(float[1,3] a, float[2,3] b) => (y) { s = Concat<axis=0>(a, b) y = Mul(s, c) }",
        ["Concat", "Mul", "Mul"], {"c": weights(3)},
    ),
    Case(
        ConstantsAfterSplit2, "(float[2,3,4] x) => (y, z) { a, b = Split<axis=-1>(x, s) y = Sub(c, a) z = Sub(d, b) }",
        ["Split", "Sub"], {"s": [1, 3], "c": weights(1), "d": weights(3)},
    ),
    Case(
        ConstantsAfterSplit2,
        "(float[2,4] x) => (y, z) { a, b = Split<axis=-1, num_outputs=2>(x) y = Add(a, c) z = Add(d, b) }",
        ["Add", "Split"], {"c": weights(2), "d": weights(1)},
    ),
    Case(
        ConstantsAfterSplit3,
        "(float[2,6] x) => (y, z, w) { a, b, c = Split<axis=1, num_outputs=3>(x) y = Mul(a, d) z = Mul(b, e) w = "
        "Mul(c, f) }",
        ["Mul", "Split"], {"d": scalar(2), "e": weights(2), "f": weights(1, 2)},
    ),
]  # fmt: skip

REFUSED = [
    Case(Reassociate, "(float[2] a, float[2] b, float[2] c) => (y) { t = Mul(a, b) y = Add(t, c) }", "don't associate"),
    Case(
        FactorDivisor, "(int64[2] a, int64[2] c) => (y) { s = Div(a, c) t = Div(a, c) y = Add(s, t) }",
        "integer division",
    ),
    Case(DivAsMul, "(int64[2] x) => (y) { y = Div(x, c) }", "not floating-point", {"c": [2]}),
    Case(DivAsMul, "(float[2] x) => (y) { y = Div(x, c) }", "overflows", {"c": np.array([1.0, 0.0])}),
    Case(DivAsMul, "(float[2] x) => (y) { y = Div(x, c) }", "overflows", {"c": scalar(1e-40)}),
    Case(SubAsAdd, "(uint32[2] x) => (y) { y = Sub(x, c) }", "no valid types", {"c": np.array([1], np.uint32)}),
    Case(SquareAsPow, "(int64[2] x) => (y) { y = Mul(x, x) }", "not floating-point"),
    Case(PowAsProduct, "(float[2] x) => (y) { y = Pow(x, c) }", "not 2 or 3", {"c": scalar(2.5)}),
    Case(PowAsRoot, "(float[2] x) => (y) { y = Pow(x, c) }", "not 1/2", {"c": scalar(2)}),
    Case(DivOfOne, "(float[2] x) => (y) { y = Div(c, x) }", "not 1", {"c": scalar(2)}),
    Case(DivOfOne, "(float[2] x) => (y) { y = Div(c, x) }", "the target gives", {"c": np.ones((3, 1))}),
    Case(MulAsHardSwish, "(float[2] x) => (y) { t = HardSigmoid<beta=0.5>(x) y = Mul(t, x) }", "not 1/6"),
    Case(AddsAsSum, "(int64[2] a, int64[2] b) => (y) { t = Add(a, b) y = Add(t, a) }", "no valid types"),
    Case(
        UnaryBeforeConcat2, "(float[2] x) => (y) { a = Elu(x) b = Elu<alpha=2.0>(x) y = Concat<axis=0>(a, b) }",
        "differ",
    ),
    Case(
        UnaryBeforeConcat2, "(float[2] x) => (y) { a = Clip(x, c) b = Clip(x, d) y = Concat<axis=0>(a, b) }", "differ",
        {"c": scalar(0), "d": scalar(1)},
    ),
    Case(
        UnaryAfterSplit2, "(float[4] x) => (y, z) { a, b = Split<num_outputs=2>(x) y = Relu(a) z = Exp(b) }", "differ",
    ),
    Case(
        BinaryAfterConcats,
        "(float[1] a, float[2] b) => (y) { s = Concat<axis=0>(a, b) t = Concat<axis=0>(b, a) y = Add(s, t) }",
        "different sizes",
    ),
    Case(
        BinaryAfterConcats, "(float[2,2] a) => (y) { s = Concat<axis=0>(a, a) t = Concat<axis=1>(b, b) y = Add(s, t) }",
        "along different axes", {"b": weights(4, 1)},
    ),
    Case(
        BinaryAfterConcat, "(float[1] a) => (y) { s = Concat<axis=0>(a, a) y = Add(s, c) }", "broadcasts",
        {"c": weights(3, 2)},
    ),
    Case(
        ConstantsAfterSplit2, "(float[4] x) => (y, z) { a, b = Split<num_outputs=2>(x) y = Sub(a, c) z = Sub(c, b) }",
        "different sides", {"c": weights(2)},
    ),
    Case(
        ConstantsAfterSplit2, "(float[4] x) => (y, z) { a, b = Split<num_outputs=2>(x) y = Sub(a, c) z = Add(c, b) }",
        "the functions differ", {"c": weights(2)},
    ),
    Case(
        ConstantsAfterSplit2,
        "(float[2,4] x) => (y, z) { a, b = Split<axis=1, num_outputs=2>(x) y = Add(a, c) z = Add(b, d) }",
        "differ in shape", {"c": weights(2), "d": weights(2, 2)},
    ),
    Case(
        ConstantsAfterSplit2, "(float[2] x) => (y, z) { a, b = Split<num_outputs=2>(x) y = Add(a, c) z = Add(b, c) }",
        "broadcasts its part", {"c": weights(3)},
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=str)
def test_rule_keeps_the_outputs(case: Case) -> None:
    case.check()


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_rule_refuses_with_a_reason(case: Case) -> None:
    case.check_refused()


def test_every_rule_is_tested() -> None:
    rules = (*elementwise.RULES, *elementwise_concat.RULES)
    assert untested(rules, APPLIES, REFUSED) == []


def test_constants_that_come_together_are_folded() -> None:
    graph = model("(float[2,3] x) => (y) { t = Add(x, b) y = Add(t, c) }", b=weights(3), c=weights(3, seed=1))
    found = check_rule(Reassociate, graph, sites=2, rtol=FOLDED)
    assert sorted(len(ops(after)) for after in found) == [1, 2]


def test_reassociation_reaches_every_order_and_comes_to_an_end() -> None:
    graph = model(
        "(float[2] a, float[2] b, float[2] c, float[2] d) => (y) { s = Add(a, b) t = Add(s, c) y = Add(t, d) }"
    )
    rewriter = Rewriter([Reassociate()], granularity="site", deployment=False)
    seen, frontier = {graph.hash}, [graph]
    while frontier:
        for candidate in rewriter.candidates(frontier.pop()):
            after = candidate.apply()
            if after.hash not in seen:
                seen.add(after.hash)
                frontier.append(after)
    assert 15 <= len(seen) <= 5 * 24
