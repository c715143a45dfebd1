"""Convolutions of clips as convolutions of frames."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.convolution import spatial3d as N
from tests.graph_rewrite.rules.checking import check_rule, model, ops, random_feeds, refuses, weights

DIRECT = (N.Conv3dAsSum, N.Conv3dAsStack)


def clip(rule, shape=(2, 16, 5, 3, 4), kernel=(3, 3, 3), attrs="pads=[1,1,1,1,1,1]", bias=True, filters=16):
    given = {"w": weights(filters, shape[1], *kernel)} | ({"b": weights(filters, seed=1)} if bias else {})
    call = f"Conv<{attrs}>(x, w{', b' if bias else ''})"
    body = f"t = {call}  y = Relu(t)" if rule.relu else f"y = {call}"
    return model(f"(float[{','.join(map(str, shape))}] x) => (y) {{ {body} }}", **given)


@pytest.mark.parametrize("rule", N.RULES)
@pytest.mark.parametrize("frames", [4, 5])
def test_equal_at_whole_and_ragged_tiles(rule, frames):
    check_rule(rule, clip(rule, (2, 16, frames, 3, 4)), rtol=2e-6)


@settings(max_examples=15)
@given(data=st.data())
def test_sums_and_stacks_at_any_geometry(data):
    def draw(low, high, count):
        return data.draw(st.lists(st.integers(low, high), min_size=count, max_size=count))

    rule = data.draw(st.sampled_from(DIRECT))
    attrs = f"pads={draw(0, 2, 6)}, strides={draw(1, 2, 3)}, dilations={draw(1, 2, 3)}"
    graph = clip(rule, (1, 3, *draw(5, 6, 3)), tuple(draw(1, 3, 3)), attrs, data.draw(st.booleans()), 2)
    check_rule(rule, graph)


def test_two_layers_need_no_transposes_between_them():
    text = "(float[1,16,4,3,3] x) => (y) { a = Conv<P>(x, v)  r = Relu(a)  c = Conv<P>(r, w)  y = Relu(c) }"
    given_ = {"v": weights(16, 16, 3, 3, 3), "w": weights(16, 16, 3, 3, 3, seed=1)}
    before = graph = model(text.replace("P", "pads=[1,1,1,1,1,1]"), **given_)
    rewriter = Rewriter([N.Conv3dReluAsSum()], granularity="site", deployment=False)
    while candidates := rewriter.candidates(graph):
        graph = candidates[-1].apply() if graph is not before else candidates[0].apply()
    assert ops(graph).count("Transpose") == 2
    feeds = random_feeds(before)
    (expected,), (found,) = run_graph(before, feeds), run_graph(graph, feeds)
    assert abs(found - expected).max() <= 1e-12 * abs(expected).max()


@pytest.mark.parametrize("rule", DIRECT)
def test_images_groups_and_relu_are_refused(rule):
    refuses(rule, model("(float[1,4,5,5] x) => (y) { y = Conv(x, w) }", w=weights(4, 4, 3, 3)), "time and space")
    grouped = model("(float[1,4,3,3,3] x) => (y) { y = Conv<group=2>(x, w) }", w=weights(4, 2, 1, 1, 1))
    refuses(rule, grouped, "groups")
    refuses(rule, clip(N.Conv3dReluAsSum), "a Relu follows")


@pytest.mark.parametrize(
    ("given_", "reason"),
    [
        ({"kernel": (2, 1, 1), "attrs": "pads=[0,0,0,0,0,0]"}, "no transform for 2 taps"),
        ({"attrs": "strides=[2,1,1]"}, "strides or dilations"),
        ({"attrs": "dilations=[2,1,1]"}, "strides or dilations"),
        ({"shape": (1, 8, 4, 3, 3)}, "blocks of 16"),
        ({"shape": (1, 16, 3, 3, 3), "attrs": "pads=[0,1,1,0,1,1]"}, "fewer than"),
    ],
)
@pytest.mark.parametrize("rule", [N.TemporalWinograd2, N.TemporalWinograd4])
def test_temporal_refusals(rule, given_, reason):
    refuses(rule, clip(rule, **given_), reason)
