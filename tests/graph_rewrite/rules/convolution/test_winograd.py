"""Toom-Cook's matrices are exact; convolutions by them equal the direct ones."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.convolution import winograd as W
from graph_rewrite.rules.convolution.toom_cook import toom_cook
from tests.graph_rewrite.rules.checking import check_rule, model, random_feeds, refuses, run_onnxruntime, weights

PLAIN = [rule for rule in W.RULES if not rule.relu]
FUSED = [rule for rule in W.RULES if rule.relu]
EXACT_SCALE = 2.0**10 * 3**4 * 5**2
"""Filters that are integers times this have transforms that float32 holds exactly, for 3 taps."""
SIZES = [(m, r) for m in range(1, 9) for r in range(1, 9) if (m + r) % 2 and 2 <= m + r - 1 <= 12]


@pytest.mark.parametrize(("m", "r"), SIZES)
def test_matrices_compute_the_convolution_exactly(m, r):
    rng = np.random.default_rng(10 * m + r)
    f, n = toom_cook(m, r), m + r - 1
    g, d = ([Fraction(int(v)) for v in rng.integers(-9, 9, k)] for k in (r, n))
    products = [
        sum(a * b for a, b in zip(row, g, strict=True)) * sum(a * b for a, b in zip(line, d, strict=True))
        for row, line in zip(f.filters, f.data, strict=True)
    ]
    found = [sum(a * p for a, p in zip(row, products, strict=True)) for row in f.results]
    assert found == [sum(d[i + k] * g[k] for k in range(r)) for i in range(m)]
    assert all(x.denominator == 1 for row in f.data for x in row)
    assert (f.tile, f.saving, f.weight_growth) == (n, Fraction(m * r, n), Fraction(n, r))


def test_the_known_matrices_of_two_outputs_and_three_taps():
    f = toom_cook(2, 3)
    half = Fraction(1, 2)
    # The transform of Lavin and Gray (2016), section 4.1, up to signs of rows.
    assert [tuple(map(abs, row)) for row in f.data] == [(1, 0, 1, 0), (0, 1, 1, 0), (0, 1, 1, 0), (0, 1, 0, 1)]
    assert [tuple(map(abs, row)) for row in f.filters] == [(1, 0, 0), (half,) * 3, (half,) * 3, (0, 0, 1)]
    assert f.results == ((1, 1, 1, 0), (0, 1, -1, 1))


@pytest.mark.parametrize(("m", "r"), [(2, 2), (3, 3), (0, 3), (12, 3), (7, 8)])
def test_sizes_without_points_are_errors(m, r):
    with pytest.raises(ValueError, match="choose other outputs per tile"):
        toom_cook(m, r)


def test_errors_grow_with_the_tile():
    grown = [toom_cook(m, 3).amplification for m in (2, 4, 6, 8)]
    assert grown == sorted(grown)
    assert grown[0] > 1
    assert W.Winograd2x2().amplification((3, 3)) == pytest.approx(grown[0] ** 2)
    assert W.Winograd4x2().weight_growth((3, 3)) == pytest.approx(6 * 4 / 9)
    assert W.WinogradRows4().weight_growth((3, 5)) == pytest.approx(2)


def conv(rule, batch=1, size=(8, 8), kernel=(3, 3), pads=(1, 1, 1, 1), bias=True, scale=1.0, channels=16, attrs=""):
    """A graph with one convolution, with a Relu for rules that take one."""
    filters = weights(channels, channels, *kernel)
    given = {"w": np.round(3 * filters) * scale if scale != 1.0 else filters}
    given |= {"b": weights(channels, seed=1)} if bias else {}
    call = f"Conv<pads={list(pads)}{attrs}>(x, w{', b' if bias else ''})"
    body = f"t = {call}  y = Relu(t)" if rule.relu else f"y = {call}"
    image = ",".join(map(str, (batch, channels, *size)))
    return model(f"(float[{image}] x) => (y) {{ {body} }}", **given)


@pytest.mark.parametrize("rule", W.RULES)
@pytest.mark.parametrize(("size", "pads"), [((8, 8), (1, 1, 1, 1)), ((5, 7), (0, 2, 1, 0))])
def test_equal_in_double_precision(rule, size, pads):
    check_rule(rule, conv(rule, size=size, pads=pads, scale=EXACT_SCALE), rtol=1e-9, rtol_float32=rule.error_growth)


@settings(max_examples=12)
@given(data=st.data())
def test_equal_at_any_size(data):
    rule = data.draw(st.sampled_from(W.RULES))
    kernel = tuple(data.draw(st.sampled_from((3, 5) if m > 1 else (1, 2, 3))) for m in rule.tiles)
    pads = tuple(data.draw(st.lists(st.integers(0, 3), min_size=4, max_size=4)))
    size = tuple(data.draw(st.integers(k + m, 13)) for k, m in zip(kernel, rule.tiles, strict=True))
    graph = conv(rule, data.draw(st.integers(1, 2)), size, kernel, pads, data.draw(st.booleans()))
    check_rule(rule, graph, rtol=5e-6, rtol_float32=2e-5)


@pytest.mark.parametrize("rule", FUSED)
def test_within_the_stated_error(rule):
    graph = conv(rule, channels=64, size=(12, 12), scale=0.01)
    (after,) = check_rule(rule, graph, rtol=5e-6)
    feeds = random_feeds(graph)
    exact = run_graph(graph, feeds)[0]
    error = np.abs(run_onnxruntime(after, feeds)[0] - exact).max() / np.abs(exact).max()
    assert error < rule.error_growth


def test_seven_taps_and_dense_kernels_along_one_axis():
    columns = conv(W.WinogradColumns4, kernel=(1, 7), pads=(0, 3, 0, 3), size=(3, 17))
    (after,) = check_rule(W.WinogradColumns4, columns, rtol=3e-5, rtol_float32=1e-4)
    dense = [node for node in after.nodes.values() if node.op == "Conv" and node.attrs.get("group", 1) == 1]
    assert len(dense) == 10
    assert {after.types[node.inputs[1]].shape for node in dense} == {(16, 16, 1, 1)}


REFUSED = [
    ({"attrs": ", strides=[2,2]"}, "strides"), ({"attrs": ", dilations=[2,2]"}, "dilations"),
    ({"channels": 12}, "blocks of 16"), ({"kernel": (2, 2)}, "no transform for 2 taps"),
    ({"kernel": (1, 1), "pads": (0,) * 4}, "no transform for 1 taps"), ({"size": (2, 2)}, "fewer than 4"),
]  # fmt: skip


@pytest.mark.parametrize(("given_", "reason"), REFUSED)
@pytest.mark.parametrize("rule", [W.Winograd4x4, W.Winograd4x4Relu])
def test_refusals(rule, given_, reason):
    refuses(rule, conv(rule, **given_), reason)


def test_groups_types_and_relu_are_refused():
    grouped = model("(float[1,32,8,8] x) => (y) { y = Conv<group=2>(x, w) }", w=weights(32, 16, 3, 3))
    refuses(W.Winograd2x2, grouped, "groups")
    clip = model("(float[1,16,8,8,8] x) => (y) { y = Conv(x, w) }", w=weights(16, 16, 3, 3, 3))
    refuses(W.Winograd2x2, clip, "two-dimensional")
    refuses(W.Winograd2x2, conv(W.Winograd2x2Relu), "a Relu follows")


def test_a_result_that_not_only_a_relu_reads():
    both = model("(float[1,16,6,6] x) => (y) { t = Conv(x, w)  r = Relu(t)  y = Add(r, t) }", w=weights(16, 16, 3, 3))
    check_rule(W.WinogradRows2, both, rtol=1e-6)
    refuses(W.WinogradRows2Relu, both, "used elsewhere")
