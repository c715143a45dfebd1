"""Rewrites of networks of images, found for one image: they hold for every batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from onnx import numpy_helper

import rewritegym
from graph_rewrite.ir.graph import Graph
from graph_rewrite.operators.nchwc import block_size
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rules.convolution.row_bands import ChainInBands
from graph_rewrite.symbolic.generalise import SymbolicResult, generalise
from tests.graph_rewrite.symbolic.walks import Step, open_dynamic, take

FRONT = """
<ir_version: 10, opset_import: ["" : 18]>
front (float[n, 1, 24, 20] image) => (float[n, 4, 12, 10] y) {
    a = Conv<pads = [1, 1, 1, 1]>(image, w0)
    b = Relu(a)
    c = Conv<pads = [1, 1, 1, 1]>(b, w1)
    d = Relu(c)
    y = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(d)
}
"""
FRONT_WEIGHTS = {"w0": (4, 1, 3, 3), "w1": (4, 4, 3, 3)}
BLOCKS = """
<ir_version: 10, opset_import: ["" : 18]>
blocks (float[n, 16, 8, 12] image) => (float[n, 16, 8, 12] y) {
    a = Conv<pads = [1, 1, 1, 1]>(image, w0)
    b = Relu(a)
    c = Conv<pads = [1, 1, 1, 1]>(b, w1)
    d = Add(c, image)
    y = Relu(d)
}
"""
BLOCKS_WEIGHTS = {"w0": (16, 16, 3, 3), "w1": (16, 16, 3, 3)}


def write(path: Path, text: str, weights: Mapping[str, tuple[int, ...]]) -> Path:
    model = onnx.parser.parse_model(text)
    rng = np.random.default_rng(0)
    for name, shape in weights.items():
        array = 0.2 * rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, path)
    return path


def carried_over(
    path: Path, shape: str, rules: tuple[str, ...], known: tuple[Rule, ...] | None = None
) -> tuple[Graph, SymbolicResult]:
    """Apply rules at one shape; return the graph there, and what becomes of it for all."""
    problem, bindings = open_dynamic(path, shape, rules=known)
    graph, steps = problem.model.graph, list[Step]()
    for rule in rules:
        graph, step = take(problem, graph, rule)
        steps.append(step)
    return graph, generalise(problem, steps, bindings)


def assert_whole_and_right(graph: Graph, result: SymbolicResult, path: Path, size: tuple[int, ...]) -> None:
    assert result.ok, result.message
    assert result.left_out == ()
    assert result.graph is not None
    assert result.checked is not None
    found, expected = (Counter(node.op for node in one.nodes.values()) for one in (result.graph, graph))
    assert {op: found[op] for op in expected} == dict(expected)
    unseen = (11, 13, 19)
    assert not any({"n": batch} in result.verified_at for batch in unseen)
    for batch in (1, *unseen):
        feeds = {"image": np.random.default_rng(batch).standard_normal((batch, *size)).astype(np.float32)}
        sessions = onnxruntime.InferenceSession(path), rewritegym.session(result.checked.path)
        before, after = (np.asarray(session.run(None, feeds)[0]) for session in sessions)
        assert np.allclose(before, after, atol=1e-5 * np.abs(before).max())


def test_as_many_bands_of_rows_at_every_batch(tmp_path: Path) -> None:
    """More images would fill more caches; the number of bands stays what it was chosen for."""
    path = write(tmp_path / "front.onnx", FRONT, FRONT_WEIGHTS)
    rule: Any = ChainInBands().at_any_size
    graph, result = carried_over(path, "image:1,1,24,20", ("ChainInBands",), (rule,))
    assert sum(node.op == "MaxPool" for node in graph.nodes.values()) > 2
    assert_whole_and_right(graph, result, path, (1, 24, 20))


def test_bands_of_a_batch_hold_for_single_images(tmp_path: Path) -> None:
    path = write(tmp_path / "front.onnx", FRONT, FRONT_WEIGHTS)
    rule: Any = ChainInBands()
    rule.least_bytes, rule.band_bytes = 8 * 4 * 24 * 20 * 4, 3e4
    graph, result = carried_over(path, "image:8,1,24,20", ("ChainInBands",), (rule,))
    assert_whole_and_right(graph, result, path, (1, 24, 20))


@pytest.mark.skipif(not block_size(), reason="ONNX Runtime has no blocked layout on this CPU")
def test_a_part_in_the_blocked_layout_holds_at_every_batch(tmp_path: Path) -> None:
    path = write(tmp_path / "blocks.onnx", BLOCKS, BLOCKS_WEIGHTS)
    rules = ("WinogradRows2Relu", "WinogradRows2", "PartInBlockedLayout")
    graph, result = carried_over(path, "image:1,16,8,12", rules)
    assert sum(node.domain == "com.microsoft.nchwc" for node in graph.nodes.values()) > 4
    assert_whole_and_right(graph, result, path, (16, 8, 12))
