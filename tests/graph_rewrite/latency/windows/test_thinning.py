"""Borders of regions with fewer channels: the region between them computes what it did."""

from __future__ import annotations

import numpy as np
import pytest

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import thinning
from graph_rewrite.latency.windows.thinning import thin
from graph_rewrite.latency.windows.window import changed_windows
from graph_rewrite.onnx_files.assembly import model, named_in
from graph_rewrite.rules.rewriter import Rewriter
from tests.graph_rewrite.latency.windows.test_window import random_feeds, run

Feeds = dict[str, np.ndarray]  # type: ignore[type-arg]


def weights(**shapes: tuple[int, ...]) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def without_double_negation(graph: Graph) -> Graph:
    """After a rewrite of what lies between the borders."""
    return next(
        c for c in Rewriter(deployment=False).candidates(graph) if [n.op for n in c.site.removed] == ["Neg", "Neg"]
    ).apply()


def sides(graph: Graph) -> tuple[Graph, Graph]:
    return thin(graph, without_double_negation(graph))


PRODUCTS = model(
    "(float[4,64] x) => (float[4,96] y) { a = MatMul(x, v) b = Neg(a) c = Neg(b) y = MatMul(c, w) }",
    **weights(v=(64, 32), w=(32, 96)),
)
GEMMS = model(
    "(float[64,4] x) => (float[4,96] y)"
    "{ a = Gemm<transA=1,transB=1>(x, v, p) b = Neg(a) c = Neg(b) y = Gemm<transB=1,alpha=0.5>(c, w, q) }",
    **weights(v=(32, 64), p=(32,), w=(96, 32), q=(4, 96)),
)
CONVOLUTIONS = model(
    "(float[1,64,6,6] x) => (float[1,96,3,3] y)"
    "{ a = Conv<pads=[1,1,1,1]>(x, v, p) b = Neg(a) c = Neg(b) y = Conv<strides=[2,2],pads=[1,1,1,1]>(c, w) }",
    **weights(v=(32, 64, 3, 3), p=(32,), w=(96, 32, 3, 3)),
)
BATCHED = model(
    "(float[2,4,64] x) => (float[2,4,96] y) { a = MatMul(x, v) b = Neg(a) c = Neg(b) y = MatMul(c, w) }",
    **weights(v=(64, 32), w=(32, 96)),
)
CHANNELS = {"products": -1, "gemms": 0, "convolutions": 1, "batched": -1}
OUTPUT = {"products": -1, "gemms": -1, "convolutions": 1, "batched": -1}
MODELS = {"products": PRODUCTS, "gemms": GEMMS, "convolutions": CONVOLUTIONS, "batched": BATCHED}


@pytest.mark.parametrize("name", MODELS)
def test_what_is_left_is_part_of_what_was(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With zeros in the channels that are no longer read, the first channels of the output are what they were."""
    monkeypatch.setattr(thinning, "TRAFFIC", 0)
    graph = MODELS[name]
    before, after = sides(graph)
    small = random_feeds(before)
    assert small["x"].shape[CHANNELS[name]] == 16
    missing = [(0, 0)] * small["x"].ndim
    missing[CHANNELS[name]] = (0, 48)
    wanted = run(graph, {"x": np.pad(small["x"], missing)})["y"]
    wanted = np.take(wanted, range(16), OUTPUT[name])
    for side in (before, after):
        np.testing.assert_allclose(run(side, small)["y"], wanted, rtol=1e-4, atol=1e-4)
        assert sum(constant.type.size for constant in side.constants.values()) < 0.5 * sum(
            constant.type.size for constant in graph.constants.values()
        )
    assert before.nodes.keys() == graph.nodes.keys()


def test_a_megabyte_of_traffic_is_kept() -> None:
    """512 x 2,048 weights and 4 x 2,048 results beside 4 x 512 elements that the region gives."""
    graph = model(
        "(float[4,2048] x) => (float[4,2048] y) { a = MatMul(x, v) b = Neg(a) c = Neg(b) y = MatMul(c, w) }",
        **weights(v=(2048, 512), w=(512, 2048)),
    )
    before, after = sides(graph)
    for side in (before, after):
        read, given = side.types[side.inputs[0]], side.types[side.outputs[0]]
        assert read is not None
        assert given is not None
        assert thinning.TRAFFIC <= read.shape[1] * (512 + 4) < 1.1 * thinning.TRAFFIC
        assert thinning.TRAFFIC <= given.shape[1] * (512 + 4) + 4 * 512 < 1.1 * thinning.TRAFFIC


def test_small_products_are_left_alone() -> None:
    before, after = PRODUCTS, without_double_negation(PRODUCTS)
    assert thin(before, after) == (before, after)


ALONE = {
    "a residual reads the input": "(float[64,64] x) => (y) { a = MatMul(x, v) b = Neg(a) c = Neg(b) y = Add(c, x) }",
    "the output is read in the region": "(float[64,64] x) => (y){ b = Neg(x) c = Neg(b) d = MatMul(c, v) y = Relu(d) }",
    "odd channels": "(float[64,64] x) => (y) { a = Slice(x, zero, odd, one) b = Neg(a) c = Neg(b) y = MatMul(c, o) }",
    "weights are not constant": "(float[64,64] x) => (y) { a = Relu(x) b = Neg(a) c = Neg(b) y = MatMul(c, x) }",
    "in between": "(float[64,64] x) => (y)"
    "{ a = Relu(x) b = MatMul(a, v) c = Neg(b) d = Neg(c) e = MatMul(d, v) y = Relu(e) }",
    "groups": "(float[1,64,4,4] x) => (y)"
    "{ a = Conv<group=64>(x, depthwise) b = Neg(a) c = Neg(b) y = Conv<group=2>(c, halves) }",
}


@pytest.mark.parametrize("text", ALONE.values(), ids=ALONE.keys())
def test_what_the_region_needs_is_left_alone(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(thinning, "TRAFFIC", 0)
    constants = weights(v=(64, 64), o=(33, 33), depthwise=(64, 1, 1, 1), halves=(64, 32, 1, 1))
    constants |= {"zero": np.array([0]), "odd": np.array([33]), "one": np.array([1])}
    before = model(text, **named_in(text, constants))
    after = without_double_negation(before)
    assert thin(before, after) == (before, after)


def test_readers_of_one_input_shrink_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "TRAFFIC", 0)
    graph = model(
        "(float[4,64] x) => (y) { a = MatMul(x, v) b = MatMul(x, w) c = Neg(a) d = Neg(c) y = Add(d, b) }",
        **weights(v=(64, 32), w=(64, 32)),
    )
    for side in sides(graph):
        assert side.types[side.inputs[0]] == (1, (4, 16))
        assert run(side, random_feeds(side))["y"].shape == (4, 32)


def test_cuts_are_thin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "TRAFFIC", 0)
    (cut,) = changed_windows(PRODUCTS, without_double_negation(PRODUCTS))
    assert [cut.before.types[v] for v in (*cut.before.inputs, *cut.before.outputs)] == [(1, (4, 16))] * 2
