"""Estimates of the time that operators take."""

from __future__ import annotations

import numpy as np
import pytest

from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.onnx_files.assembly import model


def test_a_lookup_takes_what_it_gives_not_its_table() -> None:
    text = "(int64[1,3] i) => (y) { y = Gather(t, i) }"
    few, many = (model(text, t=np.zeros((rows, 4), np.float32)) for rows in (5, 50_000))
    assert estimated_seconds(few) == estimated_seconds(many) > 0.0


def test_no_graph_takes_no_time() -> None:
    assert estimated_seconds(model("(float[0,4] x) => (y) { y = Relu(x) }")) > 0.0


def test_estimates_grow_with_arithmetic() -> None:
    w = np.ones((16, 16, 3, 3), np.float32)
    body = "y = Conv<pads=[1,1,1,1]>(x, w)"
    small, large = (model(f"(float[1,16,{n},{n}] x) => (y) {{ {body} }}", w=w) for n in (8, 16))
    assert estimated_seconds(large) > 3.0 * estimated_seconds(small)
    product = model("(float[4,8] x) => (y) { y = MatMul(x, w) }", w=np.ones((8, 2), np.float32))
    flops, traffic = 2 * 4 * 8 * 2, 4 * (4 * 8 + 8 * 2 + 4 * 2)
    assert estimated_seconds(product) == pytest.approx(flops / 6e10 + traffic / 8e9)
