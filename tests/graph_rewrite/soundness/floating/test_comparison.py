"""Comparison in floating point: what counts as a difference, what as rounding, and what is only reported."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite.operators import contrib
from graph_rewrite.soundness.floating import comparison as floating
from graph_rewrite.soundness.floating.arrays import compare_arrays
from graph_rewrite.soundness.floating.comparison import compare
from graph_rewrite.soundness.floating.inputs import KINDS, feeds, kind
from graph_rewrite.soundness.floating.runtime import run_runtime
from tests.graph_rewrite.operators.test_contrib import CASES
from tests.graph_rewrite.rules.checking import model

X = "(float[3,4] x) => (y)"
FINITE = tuple(kind.name for kind in KINDS if kind.policy != "report")


def pair(before: str, after: str, head: str = X, **constants):
    return model(f"{head} {{ {before} }}", **constants), model(f"{head} {{ {after} }}", **constants)


def test_equal_graphs_agree_on_every_kind_of_inputs():
    result = compare(*pair("y = Relu(x)", "z = Relu(x)  y = Identity(z)"))
    assert result.ok
    assert result.worst_error == 0
    assert result.compared == FINITE


def test_a_difference_names_kind_engine_and_element():
    result = compare(*pair("y = Relu(x)", "y = LeakyRelu<alpha=0.001>(x)"))
    found = result.counterexample
    assert not result.ok
    assert result.kind == found.kind == "normal"
    before, after = found.before[0][found.index], found.after[0][found.index]
    assert before == 0
    assert after == pytest.approx(0.001 * found.feeds["x"][found.index])


@pytest.mark.parametrize(("before", "after", "kind"), [
    ("y = Gelu(x)", 'y = Gelu<approximate="tanh">(x)', "normal"),
    ("y = Identity(x)", "e = Constant<value_float=0.00001>()  y = Add(x, e)", "unit"),
    # Equal for numbers of moderate size: only special ones tell them apart.
    ("y = Identity(x)", "e = Constant<value_float=0.000001>()  y = Add(x, e)", "small"),
    ("y = Relu(x)", 'y = Clip(x, "", m)', "normal"),
    ("y = Abs(x)", "s = Mul(x, x)  r = Reciprocal(s)  q = Sqrt(r)  y = Reciprocal(q)", ""),
    ("y = Abs(x)", "a = Abs(x)  s = Sign(a)  q = Div(a, s)  y = Identity(q)", "integers"),
])  # fmt: skip
def test_subtle_differences(before, after, kind):
    constants = {"m": np.float32(3)} if "m)" in after else {}
    result = compare(model(f"{X} {{ {before} }}"), model(f"{X} {{ {after} }}", **constants))
    assert result.ok is (kind == "")
    assert result.ok or result.kind == kind


def test_cancellation_is_no_difference():
    before, after = pair("t = Add(x, c)  y = Sub(t, c)", "y = Identity(x)", c=np.float32(1e4))
    found = feeds(before, kind("normal"), 0)
    errors = np.abs(run_runtime(before, found)[0] - found["x"])
    assert errors.max() > 1e-4
    assert compare(before, after).ok


def test_a_mask_under_a_softmax_hides_no_difference():
    hidden = np.where(np.tri(4, dtype=bool), 0, np.finfo(np.float32).min).astype(np.float32)
    head = "(float[4,4] x) => (y)"
    text = "t = Add(x, mask)  y = Softmax(t)"
    wrong = "d = Mul(x, c)  t = Add(d, mask)  y = Softmax(t)"
    assert compare(*pair(text, text, head, mask=hidden)).ok
    result = compare(*pair(text, wrong, head, mask=hidden, c=np.float32(1.001)))
    assert not result.ok


def test_the_sign_of_a_zero_counts_where_a_reciprocal_shows_it():
    graphs = pair("t = Sub(o, x)  y = Reciprocal(t)", "t = Neg(x)  y = Reciprocal(t)", o=np.float32(0))
    result = compare(*graphs)
    assert not result.ok
    assert result.kind == "zeros"
    assert result.counterexample.message == "the sign of zero is lost"
    lossy = compare(*graphs, lossy=frozenset({floating.SIGNED_ZERO}))
    assert lossy.ok
    assert floating.SIGNED_ZERO in lossy.lost
    assert compare(*pair("y = Sub(o, x)", "y = Neg(x)", o=np.float32(0))).ok, "0 and -0 are equal"


def test_overflow_of_the_target_alone_is_reported():
    graphs = pair("h = Mul(x, c)  y = Mul(h, x)", "s = Mul(x, x)  y = Mul(s, c)", c=np.float32(1e-30))
    result = compare(*graphs)
    assert result.ok
    assert floating.OVERFLOW in result.lost


def test_lost_infinities_are_reported():
    result = compare(*pair("y = Identity(x)", "z = Mul(x, o)  y = Add(x, z)", o=np.float32(0)))
    assert result.ok
    assert result.lost == {floating.NONFINITE}


def test_kinds_on_which_the_source_is_not_finite_are_not_compared():
    result = compare(*pair("y = Log(x)", "y = Log(x)"))
    assert result.ok
    assert "positive" in result.compared
    assert "normal" not in result.compared


def test_a_kind_that_a_rule_does_not_keep_is_not_compared():
    before, after = pair("y = Relu(x)", "t = Neg(x)  y = Relu(t)")
    names = frozenset(FINITE) - {"zeros", "negative zeros"}
    result = compare(before, after, lossy=names)
    assert result.ok
    assert result.compared == ("zeros", "negative zeros")
    with pytest.raises(ValueError, match=r"lossy: .*'nrmal'"):
        compare(before, after, lossy=frozenset({"nrmal"}))


def test_a_target_that_the_runtime_has_no_kernel_for_is_a_difference():
    before, after = pair("y = MatMul(x, w)", "y = Gemm(x, w)", "(int32[2,3] x, int32[3,4] w) => (y)")
    result = compare(before, after)
    assert not result.ok
    assert "runs the source and not the target" in result.counterexample.message


def test_graphs_over_other_inputs_are_refused():
    with pytest.raises(ValueError, match="no rewrites of each other"):
        compare(model(f"{X} {{ y = Relu(x) }}"), model("(float[3,4] z) => (y) { y = Relu(z) }"))


@given(st.integers(0, 2**32 - 1), st.sampled_from(KINDS))
def test_feeds_depend_on_seed_and_name_alone(seed, kind):
    one = model("(float[3] x, int64[2] i, bool[4] b) => (y) { y = Relu(x) }")
    two = model("(bool[4] b, float[3] x, int64[2] i) => (y) { y = Abs(x) }")
    first, second = feeds(one, kind, seed), feeds(two, kind, seed)
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name])


def test_indices_select_entries_that_exist():
    graph = model("(int64[50] i) => (y) { y = Gather(t, i) }", t=np.arange(6, dtype=np.float32).reshape(2, 3))
    assert {*feeds(graph, KINDS[0], 0)["i"]} == {0, 1}


@pytest.mark.parametrize(("a", "b", "differs"), [
    ([1.0, np.nan], [1.0, np.nan], False),
    ([1.0, np.inf], [1.0, np.nan], True),
    ([1.0, np.inf], [1.0, -np.inf], True),
    ([0.0, 1e-42], [-0.0, 2e-42], False),
    ([1.0, 0.0], [1.0, 1e-7], False),
    ([1.0, 0.0], [1.0, 1e-3], True),
    ([1, 2], [1, 3], True),
    ([True, False], [True, False], False),
])  # fmt: skip
def test_elements(a, b, differs):
    a, b = (np.array(x, dtype=np.float32 if isinstance(x[0], float) else None) for x in (a, b))
    assert compare_arrays(a, b, 1e-5, lambda scale: scale).differs is differs


def test_arrays_of_other_shapes_or_types_differ():
    a = np.zeros(2, np.float32)
    for b in (np.zeros(3, np.float32), np.zeros(2, np.float64)):
        assert "became" in compare_arrays(a, b, 1e-5, lambda scale: scale).message


def test_every_contrib_operator_is_compared_with_onnxruntime():
    known = {op for op in dir(contrib) if contrib.is_modelled(op)} | set(contrib._SEMANTICS)
    assert known == {op for op, _, _ in CASES}


def test_the_runtimes_own_error_is_no_difference():
    a, b = np.float32([1.0, 0.5]), np.float32([1.0, 0.5003])
    assert compare_arrays(a, b, 1e-4, lambda scale: scale).differs
    assert not compare_arrays(a, b, 1e-4, lambda scale: scale, noise=4e-4).differs
    assert compare_arrays(a, b, 1e-6, lambda scale: scale, noise=4e-4).differs, "grosser than any rounding"


def test_overflow_inside_an_operator_is_reported():
    axes = np.array([1])
    head = "(float[4,1] x) => (y)"
    result = compare(model(f"{head} {{ y = Abs(x) }}"), model(f"{head} {{ y = ReduceL2(x, axes) }}", axes=axes))
    assert result.ok
    assert floating.OVERFLOW in result.lost
