"""Operators as old opsets have them, whose attributes became operands later: every rewrite keeps the outputs."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from graph_rewrite import Rewriter, load
from tests.graph_rewrite.rules.checking import assert_close, random_feeds, run_onnxruntime
from tests.graph_rewrite.sample_models import parsed, weights

CONV, PAD = "Conv<kernel_shape = [3, 3], pads = [1, 1, 1, 1]>", "Pad<pads = [0, 0, 1, 1, 0, 0, 1, 1]>"
CASES = [
    (9, "1,16,6,6", "c = Clip<min = 0.1, max = 1.0>(b) y = Clip<min = 0.2, max = 0.5>(c)"),
    (10, "1,16,6,6", "c = Clip<min = -1.0, max = 0.5>(b) y = Relu(c)"),
    (10, "1,16,6,6", "y = Clip<min = 0.2, max = 0.5>(b)"),
    (9, "1,16,2,6", "c = Slice<axes = [2], starts = [0], ends = [4]>(b)"
     " y = Slice<starts = [1], ends = [3], axes = [2]>(c)"),
    (9, "1,16,6,6", "c = Slice<axes = [1], starts = [0], ends = [8]>(b)"
     " d = Slice<axes = [1], starts = [8], ends = [16]>(b) y = Concat<axis = 1>(d, c)"),
    (9, "1,16,4,6", "c = Slice<axes = [2], starts = [1], ends = [5]>(b) d = Transpose<perm = [0, 3, 1, 2]>(c)"
     " y = Transpose<perm = [0, 2, 3, 1]>(d)"),
    (9, "1,16,4,4", f"c = {CONV}(b, w) d = Relu(c) e = Slice<axes = [2, 3], starts = [1, 1], ends = [5, 5]>(d)"
     f" f = {CONV}(e, w) y = Relu(f)"),
    (10, "1,16,6,6", f"c = {PAD}(b) y = Conv<kernel_shape = [3, 3]>(c, w)"),
    (10, "1,16,8,8", f"c = {CONV}(b, w) d = Relu(c) e = {PAD}(d) f = {CONV}(e, w) y = Relu(f)"),
    (12, "1,16,6,6", f"c = {CONV}(b, w) d, e = Split<axis = 1, split = [8, 8]>(c)"
     " f = Concat<axis = 1>(e, d) y = Relu(f)"),
    (12, "1,16,6,6", "c = Unsqueeze<axes = [0]>(b) y = Squeeze<axes = [0]>(c)"),
    (12, "1,16,6,1", "c = Transpose<perm = [0, 1, 3, 2]>(b) d = ReduceSum<axes = [2], keepdims = 1>(c)"
     " y = Transpose<perm = [0, 1, 3, 2]>(d)"),
    (12, "1,16,6,6", "c = Softmax<axis = 2>(b) y = Transpose<perm = [0, 1, 3, 2]>(c)"),
    (9, "1,16,12,12", f"c = Upsample<mode = \"nearest\">(b, s) d = {CONV}(c, w) y = Relu(d)"),
]  # fmt: skip


@pytest.mark.parametrize(("opset", "shape", "body"), CASES)
def test_every_rewrite_keeps_the_outputs(opset: int, shape: str, body: str) -> None:
    text = f"(float[1,16,6,6] x) => (float[{shape}] y) {{ a = Relu(x) b = Relu(a) {body} }}"
    constants = (weights("w", 16, 16, 3, 3), numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), "s"))
    used = [constant for constant in constants if f", {constant.name})" in body]
    graph = load(parsed(text, *used, opset=opset, ir_version=6))
    feeds = random_feeds(graph)
    expected = run_onnxruntime(graph, feeds)
    candidates = Rewriter(granularity="site", deployment=False).candidates(graph)
    assert candidates  # one of the two Relu goes at least
    for candidate in candidates:
        assert_close(expected, run_onnxruntime(candidate.apply(), feeds), 1e-4, candidate.description)


def test_quantisation_stays_behind_a_clip_with_attributes() -> None:
    text = "(float[2,8] x) => (int8[2,8] y) { a = Clip<min = -0.5, max = 0.7>(x) y = QuantizeLinear(a, s, z) }"
    scale, zero = np.array(0.1, np.float32), np.array(3, np.int8)
    graph = load(
        parsed(text, numpy_helper.from_array(scale, "s"), numpy_helper.from_array(zero, "z"), opset=10, ir_version=6)
    )
    feeds = random_feeds(graph)
    for candidate in Rewriter(granularity="site", deployment=False).candidates(graph):
        assert_close(
            run_onnxruntime(graph, feeds), run_onnxruntime(candidate.apply(), feeds), 0.0, candidate.description
        )
