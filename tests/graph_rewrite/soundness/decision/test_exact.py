"""Decisions: right rules are equal, wrong ones unequal with a counterexample, and what is open says why."""

import numpy as np
import pytest

from graph_rewrite import Rewriter
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.algebra import elementwise, elimination_functions
from graph_rewrite.rules.attention import masks as attention_masks
from graph_rewrite.rules.convolution import absorption as convolution
from graph_rewrite.rules.convolution import pooling
from graph_rewrite.rules.fusion import activations
from graph_rewrite.rules.fusion import fused_matmul as fusion_matmul
from graph_rewrite.rules.fusion import normalizations as normalization
from graph_rewrite.rules.fusion.fused_conv import FuseConvLeakyRelu
from graph_rewrite.rules.fusion.skip_layer_normalization import FuseSkipLayerNormalization
from graph_rewrite.rules.matmul import algebra as matmul
from graph_rewrite.rules.matmul import parallel as matmul_parallel
from graph_rewrite.soundness.decision.exact import decide
from graph_rewrite.soundness.domains.effort import Effort
from tests.graph_rewrite.rules.algebra import (
    test_elementwise,
    test_elimination,
    test_elimination_functions,
    test_elimination_shape,
)
from tests.graph_rewrite.rules.checking import model, weights
from tests.graph_rewrite.rules.movement import test_joins_and_cuts, test_reshape, test_transpose

W = {"v": weights(3, 4, seed=1), "w": weights(4, 2, seed=2)}
CONV = {"w": weights(4, 2, 3, 3, seed=1), "b": weights(4, seed=2)}
NORM = {"g": weights(4, seed=1), "b": weights(4, seed=2)}
RIGHT = [
    (matmul.AssociateMatMulRight, "(float[2,3] x) => (y) { a = MatMul(x, v) y = MatMul(a, w) }", W),
    (elementwise.FactorDivisor, """(float[3] x, float[3] y, float[3] c) => (z)
        { a = Div(x, c) b = Div(y, c) z = Sub(a, b) }""", {}),
    (elementwise.DivAsMul, "(float[2,3] x) => (y) { y = Div(x, c) }", {"c": np.float32(0.3)}),
    (elementwise.PowAsRoot, "(float[3] x) => (y) { y = Pow(x, e) }", {"e": np.float32(-0.5)}),
    (matmul_parallel.MergeTwoMatMuls, """(float[2,3] x) => (y, z)
        { y = MatMul(x, v) z = MatMul(x, u) }""", {"v": W["v"], "u": weights(3, 2)}),
    (convolution.FoldBatchNormAfterConv, """(float[1,2,5,5] x) => (z)
        { y = Conv<pads=[1,1,1,1]>(x, w) z = BatchNormalization(y, s, b, m, q) }""",
     {**CONV, "s": weights(4, seed=3), "m": weights(4, seed=4), "q": np.abs(weights(4, seed=5))}),
    (FuseSkipLayerNormalization, """(float[2,3,4] x, float[2,3,4] s) => (y)
        { t = Add(x, s) y = LayerNormalization(t, g, b) }""", NORM),
    (FuseConvLeakyRelu, "(float[1,2,4,4] x) => (y) { c = Conv(x, w, b) y = LeakyRelu<alpha=0.3>(c) }", CONV),
    (fusion_matmul.FuseLeftTranspose, """(float[4,2] a, float[4,3] b) => (y)
        { t = Transpose<perm=[1,0]>(a) y = MatMul(t, b) }""", {}),
    (normalization.ExpandSoftmax, "(float[2,3] x) => (y) { y = Softmax(x) }", {}),
    (normalization.ExpandRMSNormalization, "(float[2,4] x) => (y) { y = RMSNormalization(x, g) }", {"g": NORM["g"]}),
    (activations.ExpandGelu, "(float[4] x) => (y) { y = Gelu(x) }", {}),
    (activations.ExpandTanhGelu, "(float[4] x) => (y) { y = Gelu<approximate=\"tanh\">(x) }", {}),
    (pooling.ReluAfterMaxPool, "(float[1,1,4,4] x) => (y) { r = Relu(x) y = MaxPool<kernel_shape=[2,2]>(r) }", {}),
    (attention_masks.CausalFlagAsMask, """(float[1,1,3,4] q, float[1,1,3,4] k, float[1,1,3,2] v) => (y)
        { y = Attention<is_causal=1>(q, k, v) }""", {}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text", "constants"), RIGHT, ids=lambda v: getattr(v, "__name__", ""))
def test_right_rules_are_equal_over_the_field(rule, text, constants):
    graph = model(text, **constants)
    candidates = Rewriter([rule()], "site", deployment=False).candidates(graph)
    assert candidates
    for candidate in candidates:
        decision = decide(graph, candidate.apply())
        assert (decision.verdict, decision.method) == ("equal", "prime-field"), str(decision)
        assert "error at most" in decision.detail


TABLES = (
    test_elementwise, test_elimination, test_elimination_functions, test_elimination_shape, test_transpose,
    test_reshape, test_joins_and_cuts,
)  # fmt: skip
CASES = [case for table in TABLES for case in table.APPLIES]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_models_of_the_rules_tests_are_equal(case):
    graph = model(case.text, case.opset, **case.constants)
    candidate = Rewriter([case.rule()], "site", deployment=False).candidates(graph)[0]
    decision = decide(graph, candidate.apply())
    assert decision.verdict == "equal", str(decision)


ORDER = [
    (elimination_functions.ComposeClips, """(float[2,2] x) => (z) <float a = {-1.0}, float b = {2.0}, float c = {0.5}>
        { y = Clip(x, a, b) z = Clip(y, c) }"""),
    (elimination_functions.DropReluOfNonNegative, "(float[2,3] x) => (z) { y = Softmax(x) z = Relu(y) }"),
    (elimination_functions.DropReluOfNonNegative, "(float[2,3] x) => (z) { y = Sigmoid(x) z = Relu(y) }"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "text"), ORDER)
def test_rules_that_need_the_order_of_the_reals_are_proved_by_z3(rule, text):
    graph = model(text)
    (candidate,) = Rewriter([rule()], "site", deployment=False).candidates(graph)
    decision = decide(graph, candidate.apply())
    assert (decision.verdict, decision.method) == ("equal", "z3"), str(decision)


PAIRS = [
    ("swapped operands", "(float[2,2] x, float[2,2] y) => (z) {{ z = {} }}", "Sub(x, y)", "Sub(y, x)"),
    ("swapped factors", "(float[2,2] x, float[2,2] y) => (z) {{ z = {} }}", "MatMul(x, y)", "MatMul(y, x)"),
    ("wrong axis", "(float[2,2] x) => (z) {{ z = {}(x) }}", "Softmax<axis=0>", "Softmax<axis=1>"),
    ("wrong permutation", "(float[2,2,2] x) => (z) {{ z = Transpose<perm={}>(x) }}", "[2,0,1]", "[1,2,0]"),
    ("order of parts", "(float[1,2] x, float[1,2] y) => (z) {{ z = Concat<axis=0>({}) }}", "x, y", "y, x"),
    ("missing padding", "(float[1,2,4,4] x) => (z) {{ z = Conv<{}>(x, w, b) }}", "pads=[1,1,1,1]", "pads=[2,2,0,0]"),
    ("padding that counts", """(float[1,1,4,4] x) => (z)
        {{ z = AveragePool<kernel_shape=[2,2], pads=[1,1,0,0], count_include_pad={}>(x) }}""", "0", "1"),
    ("kind of pool", "(float[1,1,4,4] x) => (z) {{ z = {}<kernel_shape=[2,2]>(x) }}", "MaxPool", "AveragePool"),
    ("sign inside Relu", "(float[3] x) => (z) {{ n = Neg(x) a = Relu({}) z = Neg(a) }}", "x", "n"),
    ("Relu of a sum", """(float[3] x, float[3] y) => (z)
        {{ {} }}""", "a = Add(x, y) z = Relu(a)", "a = Relu(x) b = Relu(y) z = Add(a, b)"),
    ("slope", "(float[3] x) => (z) {{ z = LeakyRelu<alpha={}>(x) }}", "0.2", "0.1"),
    ("form of Gelu", "(float[3] x) => (z) {{ z = {}(x) }}", "Gelu", "com.microsoft.QuickGelu"),
    ("rounding", "(float[3] x) => (z) {{ z = {}(x) }}", "Floor", "Ceil"),
    ("causality", "(float[1,1,3,2] q) => (z) {{ z = Attention{}(q, q, q) }}", "<is_causal=1>", ""),
    ("condition", "(bool[3] c, float[3] x, float[3] y) => (z) {{ z = Where(c, {}) }}", "x, y", "y, x"),
    ("comparison", "(float[3] x, float[3] y) => (z) {{ c = {}(x, y) z = Where(c, x, y) }}", "Less", "Greater"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "text", "before", "after"), PAIRS, ids=[pair[0] for pair in PAIRS])
def test_wrong_rules_are_refuted_by_a_counterexample(what, text, before, after):
    used = CONV if "Conv" in text else {}
    first, second = (model(text.format(part), **used) for part in (before, after))
    decision = decide(first, second)
    assert decision.verdict == "unequal", str(decision)
    found = decision.counterexample
    values = [run_graph(graph, found.inputs)[0][found.index] for graph in (first, second)]
    np.testing.assert_allclose(values, [found.before, found.after], rtol=1e-6)
    assert abs(found.before - found.after) > 1e-5
    assert decide(first, first).verdict == "equal"


def test_a_counterexample_can_be_read():
    before, after = (model(f"(float[2,2] x, float[2] y) => (z) {{ z = Sub({pair}) }}") for pair in ("x, y", "y, x"))
    decision = decide(before, after)
    (x, y), text = decision.counterexample.inputs.values(), str(decision)
    assert np.count_nonzero(x) + np.count_nonzero(y) == 1, "all but one element is zero"
    assert f"x [2, 2] = {x.tolist()}" in text
    assert "before and" in text
    assert decision.method == "prime-field"


def test_z3_finds_what_sampling_does_not():
    before = model("(float[2] x) => (y) <float high = {100000.0}> { y = Clip(x, , high) }")
    after = model("(float[2] x) => (y) { y = Identity(x) }")
    decision = decide(before, after)
    assert (decision.verdict, decision.method) == ("unequal", "z3"), str(decision)
    assert np.max(decision.counterexample.inputs["x"]) > 100000


def test_differences_too_small_for_floating_point_are_refuted_in_rationals():
    text = "(float[2] x) => (y) { y = Mul(x, c) }"
    before, after = (model(text, c=np.float32(c)) for c in (1.0, 1.00001))
    decision = decide(before, after)
    assert (decision.verdict, decision.method) == ("unequal", "prime-field"), str(decision)


def test_rounded_literals_are_left_to_floating_point():
    text = "(float[2] x) => (y) { a = Mul(x, c) y = Mul(a, d) }"
    before = model(text, c=np.float32(0.123456789), d=np.float32(0.987654321))
    after = model(text, c=np.float32(np.float32(0.123456789) * np.float32(0.987654321)), d=np.float32(1))
    decision = decide(before, after)
    assert (decision.verdict, decision.method) == ("unknown", "")
    assert "rounded" in decision.detail


def test_literals_that_were_rounded_from_short_ones_are_read_so():
    before = model("(float[2] x) => (y) { y = Div(x, c) }", c=np.float32(3))
    after = model("(float[2] x) => (y) { y = Mul(x, c) }", c=np.float32(1 / 3))
    decision = decide(before, after)
    assert (decision.verdict, decision.method) == ("equal", "prime-field"), str(decision)
    assert "0.333333343 as 1/3" in decision.detail


def test_literals_in_half_precision():
    before = model("(float16[2] x) => (y) { y = Div(x, c) }", c=np.float16(3))
    third, quarter = (model("(float16[2] x) => (y) { y = Mul(x, c) }", c=np.float16(c)) for c in (1 / 3, 1 / 4))
    assert decide(before, third).verdict == "equal"
    assert decide(before, quarter).verdict == "unequal"


def test_division_of_integers_is_no_ring_operation():
    text = "(int64[3] x, int64[3] y) => (z) <int64 one = {{1}}, int64 two = {{2}}> {{ {} }}"
    before, after = "a = Div(x, two) b = Div(y, two) z = Add(a, b)", "a = Add(x, y) z = Div(a, two)"
    assert decide(model(text.format(before)), model(text.format(after))).verdict == "unequal"
    before, after = "a = Div(x, one) z = Add(a, y)", "z = Add(x, y)"
    assert decide(model(text.format(before)), model(text.format(after))).verdict == "equal"


def test_very_negative_numbers_hide_scores_but_bound_no_clip():
    scores = "(float[2,3] x, float[2,3] y) => (z) {{ {} z = Softmax(a) }}"
    mask = np.array([0, 0, -1e9], np.float32)
    before = model(scores.format("t = Mul(x, y) a = Add(t, m)"), m=mask)
    after = model(scores.format("t = Mul(x, y) a = Where(c, t, n)"), c=mask == 0, n=np.float32(-1e9))
    assert decide(before, after).verdict == "equal"
    before = model(scores.format("a = Max(x, n)"), n=np.float32(-1e9))
    after = model(scores.format("a = Identity(x)"))
    assert decide(before, after, effort=Effort(steps=500_000)).verdict != "equal"


def test_weights_are_free_only_where_nothing_depends_on_their_values():
    graph = model("(float[2,3] x) => (y) { y = MatMul(x, v) }", v=W["v"])
    assert "all values of the weights" in decide(graph, graph).detail
    identity = model("(float[2,3] x) => (y) { y = MatMul(x, v) }", v=np.eye(3))
    same = model("(float[2,3] x) => (y) { y = Identity(x) }")
    decision = decide(identity, same)
    assert decision.verdict == "equal"
    assert "all values of the weights" not in decision.detail


def test_cases_of_truth_values_are_proved_by_z3():
    before = model("(bool[2] c, float[2] x, float[2] y) => (z) { n = Not(c) z = Where(n, x, y) }")
    after = model("(bool[2] c, float[2] x, float[2] y) => (z) { z = Where(c, y, x) }")
    decision = decide(before, after)
    assert (decision.verdict, decision.method) == ("equal", "z3"), str(decision)


@pytest.mark.parametrize(("before", "after", "words"), [
    ("(float[2] x) => (y) { y = Neg(x) }", "(float[2] z) => (y) { y = Neg(z) }", "the inputs are ['x'] before"),
    ("(float[2] x) => (y) { y = Neg(x) }", "(float[2] x) => (y, z) { y = Neg(x) z = Neg(y) }", "1 outputs before"),
    ("""(float[2] x) => (y)
        { y = Neg(x) }""", "(float[2] x) => (y) <int64[1] o = {0}> { y = Unsqueeze(x, o) }", "y is float[2]"),
])  # fmt: skip
def test_other_signatures_are_unequal(before, after, words):
    decision = decide(model(before), model(after))
    assert decision.verdict == "unequal"
    assert words in decision.detail


def test_unknown_operators_are_named():
    graph = model("(float[2] x) => (float[2] y) { y = com.microsoft.Inverse(x) }")
    decision = decide(graph, graph)
    assert decision.verdict == "unknown"
    assert "Inverse" in decision.detail


def test_a_divisor_that_is_always_zero_is_no_proof():
    graph = model("(float[2] x) => (y) { d = Sub(x, x) y = Div(x, d) }")
    assert decide(graph, graph).verdict == "unknown"


def test_the_effort_of_z3_is_bounded():
    text = "(float[3,3] x, float[3,3] y) => (z) {{ a = MatMul({}) b = Floor(a) c = MatMul(b, b) z = Sin(c) }}"
    before, after = model(text.format("x, y")), model(text.format("x, y").replace("Sin(c)", "Sin(b)"))
    effort = Effort(steps=250_000)
    decision = decide(before, after, effort=effort)
    assert decision.verdict == "unequal"


def test_what_takes_too_many_terms_or_steps_stays_open():
    text = "(float[2,2] x) => (z) {{ a = Abs(x) z = {}(a) }}"
    before, after = model(text.format("Relu")), model(text.format("Identity"))
    enough = Effort()
    assert decide(before, after, effort=enough).verdict == "equal"
    assert enough.terms < Effort().terms
    assert enough.steps < Effort().steps
    assert "too large" in decide(before, after, effort=Effort(terms=2)).detail
    assert "no steps" in decide(before, after, effort=Effort(steps=0)).detail


def test_decisions_are_reproducible():
    before, after = (model(f"(float[2,2] x) => (z) {{ z = {op}(x) }}") for op in ("Floor", "Ceil"))
    assert str(decide(before, after, seed=3)) == str(decide(before, after, seed=3))
