"""The blocked layout: single steps, whole subgraphs of networks, and what is refused."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Graph, Rewriter, Rule
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators import nchwc
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.convolution.winograd import WinogradRows2Relu
from graph_rewrite.rules.layout import blocked_steps as B
from graph_rewrite.rules.layout.blocked_image import (
    BlockedImage,
    cut,
    enter,
    in_order,
    join,
    leave,
    reshaped,
    transposed,
)
from graph_rewrite.rules.layout.blocked_subgraphs import PartInBlockedLayout
from graph_rewrite.soundness.cases.blocked import TURN, examples_of, image
from graph_rewrite.soundness.floating.runtime import run_runtime
from tests.graph_rewrite.rules.checking import check_rule, ops, random_feeds, refuses, run_onnxruntime

BLOCK = nchwc.block_size()
pytestmark = pytest.mark.skipif(not BLOCK, reason="ONNX Runtime has no blocked layout on this CPU")
SQUARE, POINT = {"w": (-1, -1, 3, 3)}, {"w": (-1, -1, 1, 1)}
EXAMPLES = [
    pytest.param(rule, number, id=f"{rule.__name__}-{number}")
    for rule in (*B.RULES, PartInBlockedLayout)
    for number in range(len(list(examples_of(rule.__name__))) if BLOCK else 0)
]


def applied(graph: Graph, *rules: Rule) -> Graph:
    """Return the graph after all that the rules do, one after the other, each to its end."""
    for rule in rules:
        rewriter = Rewriter([rule], granularity="site", deployment=False)
        while found := rewriter.candidates(graph):
            graph = found[0].apply()
    return graph


def in_layout(graph: Graph) -> list[str]:
    return sorted(node.op for node in graph.nodes.values() if node.domain == nchwc.DOMAIN)


@pytest.mark.parametrize(("rule", "number"), EXAMPLES)
def test_outputs_are_equal(rule, number):
    check_rule(rule, list(examples_of(rule.__name__))[number])


class TestConvolutions:
    def test_few_channels_stay_plain(self):
        graph = image("(float[1,3,4,4] x) => (y) { v = Conv(x, w)  y = TURN(v) }", {"w": (-1, 3, 3, 3)})
        check_rule(B.ConvInBlockedLayout, graph, becomes=["Conv", "ReorderOutput", "Transpose"])

    def test_ragged_channels_are_padded(self):
        more = BLOCK + 4
        graph = image(f"(float[1,{more},4,4] x) => (y) {{ v = Conv(x, w)  y = TURN(v) }}", {"w": (-1, more, 3, 3)})
        (after,) = check_rule(B.ConvInBlockedLayout, graph)
        (conv,) = (node for node in after.nodes.values() if node.op == "Conv")
        assert after.types[conv.inputs[1]].shape == (BLOCK, 2 * BLOCK, 3, 3)

    @pytest.mark.parametrize(("channels", "filters", "group", "reason"), [
        (BLOCK + 2, BLOCK, 1, "no multiple of 4"), (BLOCK, BLOCK + 4, 1, "do not fill blocks"),
        (2 * BLOCK, 2 * BLOCK, 4, "the groups do not fill blocks"),
    ])  # fmt: skip
    def test_what_the_layout_has_not_is_refused(self, channels, filters, group, reason):
        w = np.zeros((filters, channels // group, 1, 1), np.float32)
        text = f"(float[1,{channels},3,3] x) => (y) {{ v = Conv<group={group}>(x, w)  y = {TURN}(v) }}"
        refuses(B.ConvInBlockedLayout, model(text, w=w), reason)

    def test_beside_what_the_runtime_keeps_in_the_layout_nothing_is_gained(self):
        graph = image("(float[1,B,3,3] x) => (y) { t = Conv(x, w)  y = MaxPool<kernel_shape=[2,2]>(t) }", POINT)
        refuses(B.ConvInBlockedLayout, graph, "by itself")

    def test_an_activation_goes_with_its_convolution(self):
        graph = image("(float[1,B,3,3] x) => (y) { t = Conv(x, w)  v = Relu(t)  y = TURN(v) }", POINT)
        refuses(B.ConvInBlockedLayout, graph, "an activation follows")

    def test_weights_come_back_as_they_were(self):
        graph = image("(float[1,B,4,4] x) => (y) { v = Conv(x, w)  y = TURN(v) }", SQUARE)
        back = applied(applied(graph, B.ConvInBlockedLayout()), B.BlockedConvToConv())
        (before,), (after,) = (
            [g.constants[node.inputs[1]].digest for node in g.nodes.values() if node.op == "Conv"]
            for g in (graph, back)
        )
        assert before == after

    def test_other_types_are_refused(self):
        w = np.zeros((BLOCK, BLOCK, 1, 1), np.float16)
        text = f"(float16[1,{BLOCK},3,3] x) => (y) {{ v = Conv(x, w)  y = Transpose<perm=[0,1,3,2]>(v) }}"
        refuses(B.ConvInBlockedLayout, model(text, w=w), "in float32")


class TestReorders:
    def test_what_fills_a_block_up_is_not_kept(self):
        text = (
            f"(float[1,B,2,2] x) => (y) {{ t = NCHWC.ReorderOutput<channels={BLOCK - 4}>(x)"
            "  u = NCHWC.ReorderInput(t)  y = Neg(u) }"
        )
        refuses(B.ReorderOutputThenInput, image(text, {}), "do not fill blocks")

    def test_a_chain_of_small_steps_leaves_one_reorder_at_either_end(self):
        graph = image(
            "(float[2,B,4,4] x) => (y) { a = TURN(x)  b = Conv(a, w)  r = Relu(b)  s = Concat<axis=0>(r, r)"
            "  c = Conv(s, w)  p = MaxPool<kernel_shape=[2,2]>(c)  y = TURN(p) }",
            POINT,
        )
        steps = (
            B.ConvActivationInBlockedLayout(), B.ConvInBlockedLayout(), B.ConcatInBlockedLayout(),
            B.ReorderOutputThenInput(), B.PoolInBlockedLayout(),
        )  # fmt: skip
        after = applied(graph, *steps)
        assert in_layout(after) == ["Conv", "Conv", "MaxPool", "ReorderInput", "ReorderOutput"]
        feeds = random_feeds(graph)
        np.testing.assert_allclose(run_onnxruntime(after, feeds)[0], run_onnxruntime(graph, feeds)[0], atol=1e-5)

    def test_parts_of_blocks_are_not_joined_or_cut(self):
        text = "(float[1,B,2,2] x, float[1,12,2,2] z) => (y) { t = NCHWC.ReorderOutput<channels=16>(x)"
        refuses(B.ConcatInBlockedLayout, image(text + "  y = Concat<axis=1>(t, z) }", {}), "do not fill blocks")
        text = "(float[1,B,2,2] x) => (y) <int64[1] s = {4}, int64[1] e = {16}, int64[1] a = {1}>"
        text += " { t = NCHWC.ReorderOutput<channels=16>(x)  y = Slice(t, s, e, a) }"
        refuses(B.CutInBlockedLayout, image(text, {}), "do not fill blocks")


class TestParts:
    def test_a_fast_convolution_stays_in_the_layout(self):
        graph = image(
            "(float[1,C,6,5] x) => (y) { a = Conv<pads=[1,1,1,1]>(x, w)  b = Relu(a)  c = Conv<pads=[1,1,1,1]>(b, w)"
            "  d = Relu(c)  y = ReduceMean<keepdims=0>(d) }",
            {"w": (-2, -2, 3, 3)},
        )
        fast = applied(graph, WinogradRows2Relu())
        (after,) = check_rule(PartInBlockedLayout, fast)
        found = in_layout(after)
        assert (found.count("ReorderInput"), found.count("ReorderOutput")) == (1, 1)
        assert not any(node.op == "Conv" for node in after.nodes.values() if not node.domain)

    def test_a_residual_goes_into_the_last_convolution(self):
        (graph, *_) = examples_of("PartInBlockedLayout")
        (after,) = check_rule(PartInBlockedLayout, graph)
        assert ops(after) == ["Conv", "Conv", "ReorderInput", "ReorderOutput", "Transpose"]
        last = [node for node in after.order() if node.op == "Conv"][-1]
        assert last.attrs["activation"] == "Relu"
        assert len(last.inputs) == 4

    def test_what_others_read_stays_outside(self):
        graph = image(
            "(float[1,B,3,3] x) => (y, r) { a = Conv(x, w)  r = Relu(a)  c = Conv(r, w)  d = TURN(c)  y = Conv(d, w) }",
            POINT,
        )
        (after,) = check_rule(PartInBlockedLayout, graph)
        assert [node.domain for node in after.order() if node.op == "Conv"] == ["", nchwc.DOMAIN, nchwc.DOMAIN]

    def test_operators_without_a_form_are_left_as_they_are(self):
        graph = image(
            "(float[1,B,3,3] x) => (y) { a = Conv(x, w)  b = TURN(a)  c = Conv(b, v)  d = Relu(c)  y = Conv(d, u) }",
            {**POINT, "v": (BLOCK + 4, BLOCK, 1, 1), "u": (BLOCK, BLOCK + 4, 1, 1)},
        )
        (after,) = check_rule(PartInBlockedLayout, graph)
        assert [node.domain for node in after.order() if node.op == "Conv"] == [nchwc.DOMAIN, "", nchwc.DOMAIN]

    def test_a_part_ends_before_a_convolution_without_a_form(self):
        """A single filter at the end, as density maps and segmentations have."""
        graph = image(
            "(float[1,B,3,3] x) => (y) { a = Conv(x, w)  b = TURN(a)  c = Conv(b, w)  d = Relu(c)  y = Conv(d, v) }",
            {**POINT, "v": (1, BLOCK, 1, 1)},
        )
        (after,) = check_rule(PartInBlockedLayout, graph)
        assert [node.domain for node in after.order() if node.op == "Conv"] == [nchwc.DOMAIN, nchwc.DOMAIN, ""]

    @pytest.mark.parametrize(("body", "reason"), [
        ("t = Conv(x, w)  y = TURN(t)", "fewer than 2 convolutions"),
        ("t = Conv(x, w)  u = Relu(t)  y = Conv(u, w)", "keeps the whole part"),
    ])  # fmt: skip
    def test_where_nothing_is_gained_it_is_refused(self, body, reason):
        refuses(PartInBlockedLayout, image(f"(float[1,B,3,3] x) => (y) {{ {body} }}", POINT), reason)

    def test_without_a_blocked_layout_it_is_refused(self, monkeypatch):
        (graph, *_) = examples_of("PartInBlockedLayout")
        monkeypatch.setattr("graph_rewrite.rules.layout.blocked_subgraphs.block_size", lambda: 0)
        refuses(PartInBlockedLayout, graph, "no blocked layout on this CPU")

    def test_a_class_moves_all_parts_of_a_kind(self):
        part = "a{i} = Conv(x{i}, w)  b{i} = TURN(a{i})  y{i} = Conv(b{i}, w)"
        text = f"(float[1,B,2,3] x0, float[1,B,2,3] x1) => (y0, y1) {{ {part.format(i=0)}  {part.format(i=1)} }}"
        graph = image(text, POINT)
        (candidate,) = Rewriter([PartInBlockedLayout()], granularity="class", deployment=False).candidates(graph)
        assert candidate.count == 2
        after = candidate.apply()
        assert in_layout(after).count("Conv") == 4
        feeds = random_feeds(graph)
        for before, found in zip(run_runtime(graph, feeds), run_runtime(after, feeds), strict=True):
            np.testing.assert_allclose(found, before, atol=1e-5)


def moves() -> st.SearchStrategy[list[tuple[str, int, int]]]:
    kinds = st.sampled_from(["transpose", "cut", "join", "merge", "split"])
    return st.lists(st.tuples(kinds, st.integers(0, 5), st.integers(0, 5)), max_size=5)


@settings(max_examples=40, deadline=None)
@given(moves())
def test_moves_of_blocked_values_are_those_of_plain_ones(steps):
    """Entering, moving and leaving gives what moving the plain value does."""
    from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder

    op = ReplacementBuilder(23)
    plain = np.arange(2 * BLOCK * 4 * 6, dtype=np.float32).reshape(2, BLOCK, 4, 6)
    x: Any = enter(op, op.constant(plain), 1)
    assert isinstance(x, BlockedImage)
    for kind, i, j in steps:
        axis, other = i % plain.ndim, j % plain.ndim
        if kind == "transpose":
            perm = list(range(plain.ndim))
            perm[axis], perm[other] = perm[other], perm[axis]
            x, plain = transposed(x, perm), plain.transpose(perm)
        elif kind == "cut" and x.perm[axis] != x.channels:
            kept = range(plain.shape[axis])[j % 2 :: 1 + j % 2] or range(plain.shape[axis])
            x, plain = cut(op, x, axis, kept), np.take(plain, list(kept), axis)
        elif kind == "join" and plain.size < 20000:
            x, plain = join(op, [x, x], axis), np.concatenate([plain, plain], axis)
        else:
            shape = list(plain.shape)
            if kind == "split" and shape[axis] % 2 == 0 and plain.ndim < 6:
                shape[axis : axis + 1] = [shape[axis] // 2, 2]
            elif kind == "merge" and axis + 1 < plain.ndim:
                shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
            moved = reshaped(op, x, shape)
            if moved is None or len(shape) < 3:
                continue
            x, plain = moved, plain.reshape(shape)
        assert x.shape == plain.shape
    result: Ref = leave(op, x)
    assert np.array_equal(result.numpy(), plain)
    assert in_order(op, x).is_in_order


def test_meaning_in_float64_is_that_of_the_plain_operators():
    """The reference evaluator and ONNX Runtime agree on a subgraph that has every kind of move."""
    for graph in examples_of("PartInBlockedLayout"):
        feeds = random_feeds(graph)
        after = applied(graph, PartInBlockedLayout())
        for exact, found in zip(run_graph(graph, feeds), run_graph(after, feeds), strict=True):
            np.testing.assert_allclose(found, exact, atol=1e-12)
