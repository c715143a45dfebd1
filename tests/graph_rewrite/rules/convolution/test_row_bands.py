"""Chains of convolutions and pools, band by band of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators.evaluation import run_graph
from graph_rewrite.rewriting.candidates import Candidates
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.convolution.row_bands import ChainInBands
from tests.graph_rewrite.rules.checking import check_rule, ops, random_feeds, refuses, run_onnxruntime, weights

SMALL = ChainInBands().at_any_size
FRONT = (
    "(float[1,1,{0},{0}] x) => (y) {{ a = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(a)"
    " c = Conv<pads=[1,1,1,1]>(r, v) s = Relu(c) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(s) }}"
)
FILTERS: dict[str, Any] = {"w": weights(4, 1, 3, 3), "b": weights(4), "v": weights(4, 4, 3, 3)}


def heights(graph: Graph, op: str) -> list[int]:
    """Return the rows of the results of an operator, band by band."""
    types = [graph.types[node.outputs[0]] for node in graph.order() if node.op == op]
    return [type.shape[2] for type in types if type is not None]


def test_the_front_of_a_network_at_its_real_size() -> None:
    graph = model(FRONT.format(400), **FILTERS)  # the widest value has 2.56 MB
    (banded,) = check_rule(
        ChainInBands, graph, becomes=["Slice", "Conv", "Relu", "Conv", "Relu", "MaxPool"] * 2 + ["Concat"]
    )
    assert heights(banded, "MaxPool") == [100, 100]
    assert heights(banded, "Slice") == [202, 202]
    feeds = random_feeds(graph)
    before, after = run_onnxruntime(graph, feeds), run_onnxruntime(banded, feeds)
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))  # the same sums, exactly


def test_bands_keep_the_widest_value_small() -> None:
    graph = model(FRONT.format(16), **FILTERS)
    (banded,) = check_rule(SMALL, graph)
    widest = max(4 * type.size for type in map(banded.types.get, banded.types) if type is not None)
    assert widest <= 1.6 * SMALL.band_bytes
    assert sum(heights(banded, "MaxPool")) == 8


LAYERS = st.sampled_from([
    "Conv<pads=[{p},0,{q},1], strides=[{s},1], dilations=[{d},1]>({x}, w{k})", "Relu({x})", "HardSwish({x})",
    "MaxPool<kernel_shape=[{k},2], strides=[{s},1], pads=[{p},0,0,1]>({x})",
    "AveragePool<kernel_shape=[{k},2], strides=[{s},2]>({x})",
])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(LAYERS, st.integers(0, 1), st.integers(0, 2), st.integers(1, 2), st.integers(1, 2),
                          st.integers(2, 3)), min_size=1, max_size=4), st.integers(12, 30))  # fmt: skip
def test_chains_of_any_geometry_keep_their_values(layers: list[tuple[str, int, int, int, int, int]], rows: int) -> None:
    lines = ["a0 = Conv<pads=[1,1,1,1]>(x, w0)"]
    for i, (layer, p, q, s, d, k) in enumerate(layers):
        lines.append(f"a{i + 1} = {layer.format(x=f'a{i}', p=p, q=q, s=s, d=d, k=k)}")
    text = f"(float[1,1,{rows},9] x) => (y) {{ {' '.join(lines)} y = Conv(a{len(layers)}, u) }}"
    filters = {
        "w0": weights(6, 1, 3, 3),
        "w2": weights(6, 6, 2, 2),
        "w3": weights(6, 6, 3, 2),
        "u": weights(1, 6, 1, 1),
    }
    used: dict[str, Any] = {name: value for name, value in filters.items() if f" {name})" in text}
    graph = model(text, **used)
    feeds = random_feeds(graph)
    for candidate in _candidates(graph):
        before, after = run_graph(graph, feeds), run_graph(candidate.apply(), feeds)
        for one, other in zip(before, after, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-9)


def _candidates(graph: Graph) -> Candidates:
    return Rewriter([SMALL], granularity="site", deployment=False).candidates(graph)


def test_it_begins_and_ends_where_the_image_is_narrow() -> None:
    """The second pool's chain begins at the first pool, above which the image is wider again."""
    text = FRONT.format(24)[: -len(" }")].replace("y = MaxPool", "p = MaxPool")
    text += " d = Conv<pads=[1,1,1,1]>(p, t) e = Relu(d) y = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e) }"
    graph = model(text, **FILTERS, t=weights(8, 4, 3, 3))
    first, second = check_rule(SMALL, graph, 2)
    assert (ops(first).count("Conv"), heights(first, "MaxPool")) == (2 * 12 + 1, [*[1] * 12, 6])
    assert (ops(second).count("Conv"), heights(second, "MaxPool")) == (2 + 6, [12, *[1] * 6])


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("y = Relu(a)", ""),
        ("r = Relu(a) y = Conv(r, u)  z = Neg(r)", "narrow"),
        ("y = MaxPool<kernel_shape=[2,2], strides=[2,2], ceil_mode=1>(a)", "rounds up"),
        ("y = AveragePool<kernel_shape=[3,3], strides=[3,3], pads=[1,1,1,1]>(a)", "divides by less"),
        ("p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(a)  y = Relu(p)", "goes on"),
        ("y = Conv<pads=[3,0,0,0], strides=[2,2]>(a, v)", "padding alone"),
        ("y = Conv<pads=[1,1,1,1]>(a, v)", "narrow"),
    ],
)
def test_conditions(text: str, reason: str) -> None:
    outputs = "(y, z)" if "z =" in text else "(y)"
    constants: dict[str, Any] = {"v": FILTERS["v"]} | ({"u": weights(1, 4, 1, 1)} if "u)" in text else {})
    used = {name: value for name, value in constants.items() if f", {name})" in text}
    graph = model(
        f"(float[1,1,24,24] x) => {outputs} {{ a = Conv<pads=[1,1,1,1]>(x, w) {text} }}", w=FILTERS["w"], **used
    )
    if reason:
        refuses(SMALL, graph, reason)
    else:
        assert not list(_candidates(graph))


def test_what_stays_in_the_caches_is_left_alone() -> None:
    refuses(ChainInBands, model(FRONT.format(64), **FILTERS), "stays in the caches")


def test_other_rules_are_verified_as_they_are() -> None:
    changed = [rule.name for rule in rule_set("default") if rule.at_any_size is not rule]
    assert sorted(changed) == ["ChainInBands", "MovesAsGather", "TileFeedForward"]
