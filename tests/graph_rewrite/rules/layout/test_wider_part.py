"""Depthwise networks and DenseNets in the blocked layout: gates, padded channels, normalisations, refusals."""

from typing import Any

import numpy as np
import pytest

from graph_rewrite import Graph, Rewriter
from graph_rewrite.operators import nchwc
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rules.layout.blocked_subgraphs import PartInBlockedLayout
from graph_rewrite.rules.layout.wider_subgraphs import WiderPartInBlockedLayout
from graph_rewrite.rules.layout.wider_walk import _tile, gated_operand
from graph_rewrite.soundness.cases.blocked import examples_of, image
from tests.graph_rewrite.rules.checking import check_rule, ops, random_feeds, refuses, run_onnxruntime

BLOCK = nchwc.block_size()
pytestmark = pytest.mark.skipif(not BLOCK, reason="ONNX Runtime has no blocked layout on this CPU")
EXAMPLES = list(examples_of("WiderPartInBlockedLayout")) if BLOCK else []
GATE = "m = GlobalAveragePool(c)  e = Conv(m, u)  g = Sigmoid(e)  p = Mul(c, g)"


@pytest.mark.parametrize("graph", EXAMPLES)
def test_outputs_are_equal(graph: Graph) -> None:
    check_rule(WiderPartInBlockedLayout, graph, rtol=1e-6)  # statistics are folded in float32


def rewritten(text: str, filters: dict[str, Any]) -> Graph:
    (after,) = check_rule(WiderPartInBlockedLayout, image(text, filters))
    return after


def operators(graph: Graph) -> list[str]:
    return sorted(node.op for node in graph.nodes.values())


def test_factors_go_into_the_filters_where_positions_are_many() -> None:
    filters = {"w": (-1, -1, 1, 1), "u": (-1, -1, 1, 1), "v": (-1, -1, 1, 1)}
    text = "(float[1,B,{size},{size}] x) => (y) {{ c = Conv(x, w)  {gate}  y = Conv(p, v) }}"
    large = rewritten(text.format(size=8, gate=GATE), filters)
    small = rewritten(text.format(size=3, gate=GATE), filters)
    assert operators(large).count("Conv") == 3
    assert operators(large).count("Mul") == 1
    assert operators(small).count("Conv") == 4
    assert "Mul" not in operators(small)


def test_nothing_leaves_the_layout_between_the_ends() -> None:
    filters = {"w": (20, -1, 1, 1), "k": (20, 1, 3, 3), "u": (20, 20, 1, 1), "v": (24, 20, 1, 1)}
    text = f"(float[1,B,8,8] x) => (y) {{ a = Conv(x, w)  c = Conv<group=20>(a, k)  {GATE}  y = Conv(p, v) }}"
    after = rewritten(text, filters)
    assert [op for op in operators(after) if op.startswith("Reorder")] == ["ReorderInput", "ReorderOutput"]
    assert {node.op for node in after.nodes.values() if not node.domain} == {"Reshape"}


def test_activations_go_into_the_convolutions() -> None:
    text = f"(float[1,B,9,9] x) => (y) {{ a = Conv(x, w)  c = HardSwish(a)  {GATE}  y = Conv(p, v) }}"
    after = rewritten(text, {"w": (-1, -1, 1, 1), "u": (-1, -1, 1, 1), "v": (-1, -1, 1, 1)})
    found = [node.attrs.get("activation", "") for node in after.nodes.values() if node.op == "Conv"]
    assert sorted(found) == ["", "HardSwish", "Sigmoid"]


def test_large_images_are_averaged_as_precisely_as_before() -> None:
    text = f"(float[1,3,120,120] x) => (y) {{ c = Conv(x, w)  {GATE}  s = Conv(p, v)  y = GlobalAveragePool(s) }}"
    graph = image(text, {"w": (-1, 3, 1, 1), "u": (-1, -1, 1, 1), "v": (-1, -1, 1, 1)})
    (after,) = check_rule(WiderPartInBlockedLayout, graph)
    feeds = {name: value + np.float32(1) for name, value in random_feeds(graph).items()}
    (exact,) = run_graph(graph, feeds)
    (found,) = run_onnxruntime(after, feeds)
    assert np.abs(found - exact).max() < 2e-6 * np.abs(exact).max()


@pytest.mark.parametrize(("height", "width", "tile"), [(112, 112, 8), (56, 56, 7), (7, 7, 1), (40, 25, 5), (31, 37, 1)])
def test_tiles_cover_the_image(height: int, width: int, tile: int) -> None:
    found = _tile(height, width)
    assert found == tile
    assert height % found == width % found == 0


def test_gates_scale_the_channels_of_one_image() -> None:
    assert gated_operand((1, 8, 3, 3), (1, 8, 1, 1)) == 0
    assert gated_operand((1, 8, 1, 1), (1, 8, 3, 3)) == 1
    for left, right in (((2, 8, 3, 3), (2, 8, 1, 1)), ((1, 8, 3, 3), (1, 1, 1, 1)), ((1, 8, 1, 1), (1, 8, 1, 1))):
        assert gated_operand(left, right) is None


def test_parts_without_gates_and_with_few_normalisations_are_left() -> None:
    text = "(float[1,B,3,4] x) => (y) { a = Conv(x, w)  r = Relu(a)  y = Conv(r, w) }"
    refuses(WiderPartInBlockedLayout, image(text, {"w": (-1, -1, 1, 1)}), "no channels are scaled")


def test_channels_that_do_not_fill_blocks_stay_within_the_part() -> None:
    text = f"(float[1,B,3,3] x) => (y) {{ a = Conv(x, w)  c = Conv(a, k)  {GATE}  y = Conv(p, v) }}"
    filters = {"w": (-1, -1, 1, 1), "k": (18, -1, 1, 1), "u": (18, 18, 1, 1), "v": (-1, 18, 1, 1)}
    after = rewritten(text, filters)  # 18 channels cannot enter the layout; these are computed in it
    assert [op for op in operators(after) if op.startswith("Reorder")] == ["ReorderInput", "ReorderOutput"]


def test_channels_that_cannot_enter_the_layout_end_the_part() -> None:
    text = f"(float[1,18,3,3] x) => (y) {{ c = Conv(x, w)  {GATE}  y = Conv(p, v) }}"
    filters = {"w": (18, 18, 1, 1), "u": (18, 18, 1, 1), "v": (-1, 18, 1, 1)}
    refuses(WiderPartInBlockedLayout, image(text, filters), "")


@pytest.mark.parametrize(("function", "padded"), [("Abs", True), ("Sqrt", False), ("Exp", False)])
def test_what_may_not_be_finite_is_not_applied_to_padding(function: str, padded: bool) -> None:
    text = f"(float[1,B,3,3] x) => (y) {{ a = Conv(x, w)  b = Abs(a)  c = {function}(b)  {GATE}  y = Conv(p, v) }}"
    after = rewritten(text, {"w": (20, -1, 1, 1), "u": (20, 20, 1, 1), "v": (20, 20, 1, 1)})
    *_, last = (node for node in after.order() if node.op == function)
    assert after.types[last.outputs[0]].shape[1] == (20 + -20 % BLOCK if padded else 20)


def test_what_something_else_reads_stays_outside() -> None:
    filters = {"w": (-1, -1, 1, 1), "u": (-1, -1, 1, 1), "v": (-1, -1, 1, 1)}
    text = f"(float[1,B,3,3] x) => (y, a) {{ a = Conv(x, w)  c = Conv(a, v)  {GATE}  y = Conv(p, v) }}"
    after = rewritten(text, filters)
    assert ops(after).count("Conv") == 5  # the first one is left as it is
    assert sum(node.op == "Conv" and not node.domain for node in after.nodes.values()) == 1


def test_networks_of_the_zoo_without_gates_are_none_of_its_business() -> None:
    graph = next(iter(examples_of("PartInBlockedLayout")))
    assert Rewriter([PartInBlockedLayout()], deployment=False).candidates(graph)
    assert not Rewriter([WiderPartInBlockedLayout()], deployment=False).candidates(graph)
