"""Operators of the blocked layout: types and meaning, each against ONNX Runtime itself."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.operators import nchwc
from graph_rewrite.operators.evaluation import run_graph, run_operator
from graph_rewrite.operators.standard_types import TypeInferenceError
from tests.graph_rewrite.rules.checking import random_feeds, run_onnxruntime, weights

BLOCK = nchwc.block_size()
DOMAIN = nchwc.DOMAIN
pytestmark = pytest.mark.skipif(not BLOCK, reason="ONNX Runtime has no blocked layout on this CPU")


def apply(op: str, attrs: Any, inputs: Any) -> Any:
    return run_operator(op, "", attrs, inputs, nchwc.OPSET)[0]


def blocked(*shape: int) -> TensorType:
    return TensorType(TensorProto.FLOAT, shape)


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU with blocks of 8."""
    monkeypatch.setattr(nchwc, "block_size", lambda: 8)


def test_the_block_is_what_onnx_runtime_fills_channels_up_to():
    assert BLOCK in (4, 8, 16, 32)
    graph = model(f"(float[1,4,2,2] x) => (y) {{ y = {DOMAIN}.ReorderInput(x) }}")
    (found,) = run_onnxruntime(graph, random_feeds(graph))
    assert found.shape == (1, BLOCK, 2, 2)


def test_channels_of_a_position_lie_side_by_side(eight: None):
    x = np.arange(2 * 16 * 3 * 2, dtype=np.float32).reshape(2, 16, 3, 2)
    (y,) = nchwc.run("ReorderInput", {}, [x])
    # [N, C / 8, H, W, 8] in memory.
    assert np.array_equal(y.reshape(2, 2, 3, 2, 8)[1, 1, 2, 0], x[1, 8:, 2, 0])
    assert np.array_equal(nchwc.run("ReorderOutput", {"channels": 16}, [y])[0], x)


CONVOLUTIONS = [
    (2 * BLOCK, BLOCK, 1, "pads=[1,1,1,1]", (7, 6)),
    (3, 2 * BLOCK, 1, "strides=[2,1]", (3, 4)),
    (2 * BLOCK, 2 * BLOCK, 2 * BLOCK, "dilations=[2,1], pads=[0,1,1,0]", (4, 5)),
    (2 * BLOCK, 2 * BLOCK, 2, 'activation="Relu"', (5, 4)),
    (BLOCK, BLOCK, 1, 'activation="LeakyRelu", activation_params=[0.25]', (5, 4)),
    (BLOCK, BLOCK, 1, 'activation="HardSigmoid", activation_params=[0.3, 0.4]', (5, 4)),
]


@pytest.mark.parametrize(("channels", "count", "group", "attrs", "size"), CONVOLUTIONS)
@pytest.mark.parametrize("more", ["", ", b", ", b, q"])
def test_convolutions_mean_what_onnx_runtime_computes(channels, count, group, attrs, size, more):
    w = weights(count, channels // group, 3, 3) / channels
    entered = f"r = {DOMAIN}.ReorderInput(x)" if channels >= BLOCK else "r = Identity(x)"
    conv = f"{DOMAIN}.Conv<group={group}, kernel_shape=[3,3], {attrs}>(r, w{more})"
    graph = model(
        f"(float[2,{channels},7,6] x, float[2,{count},{size[0]},{size[1]}] s) => (y) {{ {entered}"
        f"  q = {DOMAIN}.ReorderInput(s)  c = {conv}  y = {DOMAIN}.ReorderOutput<channels={count}>(c) }}",
        w=nchwc.blocked_filters(w, group, channels, apply), b=weights(count, seed=1),
    )  # fmt: skip
    feeds = random_feeds(graph)
    for exact, found in zip(run_graph(graph, feeds), run_onnxruntime(graph, feeds), strict=True):
        np.testing.assert_allclose(found, exact, atol=1e-5)


@pytest.mark.parametrize(
    "pool",
    ["MaxPool<kernel_shape=[2,3],strides=[2,1],pads=[1,0,0,1]>", "AveragePool<kernel_shape=[2,2],pads=[1,0,0,1]>",
     "AveragePool<kernel_shape=[2,2],pads=[1,1,0,0],count_include_pad=1>", "GlobalAveragePool", "GlobalMaxPool"],
)  # fmt: skip
def test_pools_mean_what_onnx_runtime_computes(pool):
    graph = model(f"(float[2,{BLOCK},5,4] x) => (y) {{ y = {DOMAIN}.{pool}(x) }}")
    feeds = random_feeds(graph)
    np.testing.assert_allclose(run_onnxruntime(graph, feeds)[0], run_graph(graph, feeds)[0], atol=1e-6)


@pytest.mark.parametrize(("count", "depth", "group", "channels"), [
    (32, 16, 1, 16), (16, 3, 1, 3), (32, 1, 32, 32), (32, 16, 2, 32),
])  # fmt: skip
@pytest.mark.parametrize("block", [8, 16])
def test_filters_are_convertible_back(monkeypatch, count, depth, group, channels, block):
    monkeypatch.setattr(nchwc, "block_size", lambda: block)
    w = weights(count, depth, 2, 3)
    moved = nchwc.blocked_filters(w, group, channels, apply)
    assert moved.shape == w.shape
    assert not np.array_equal(moved, w)
    assert np.array_equal(nchwc.plain_filters(moved, {"group": group}, channels, apply), w)


REFUSED = [
    ("ReorderInput", {}, [blocked(1, 6, 2, 2)], "no multiple of 4"),
    ("ReorderInput", {}, [blocked(1, 8, 2)], "only images"),
    ("ReorderInput", {}, [TensorType(TensorProto.FLOAT16, (1, 8, 2, 2))], "float32"),
    ("ReorderInput", {"channels_last": 1}, [blocked(1, 8, 2, 2)], "channels_last"),
    ("ReorderOutput", {"channels": 8}, [blocked(1, 16, 2, 2)], "8 of 16 channels"),
    ("ReorderOutput", {}, [blocked(1, 8, 2, 2)], "0 of 8 channels"),
    ("MaxPool", {"kernel_shape": (2, 2)}, [blocked(1, 12, 2, 2)], "do not fill blocks"),
    ("Conv", {}, [blocked(1, 8, 2, 2), blocked(12, 8, 1, 1)], "do not fill blocks"),
    ("Conv", {"group": 2}, [blocked(1, 8, 2, 2), blocked(16, 4, 1, 1)], "do not fill blocks"),
    ("Conv", {}, [blocked(1, 8, 2, 2), blocked(8, 8, 1, 1), None, blocked(1, 8, 1, 2)], "not of the result's type"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "attrs", "inputs", "reason"), REFUSED)
def test_types_that_do_not_fit_are_refused(eight, op, attrs, inputs, reason):
    with pytest.raises(TypeInferenceError, match=reason):
        nchwc.infer(op, attrs, inputs, 1)


def test_without_a_blocked_layout_nothing_has_a_type(monkeypatch):
    monkeypatch.setattr(nchwc, "block_size", lambda: 0)
    with pytest.raises(TypeInferenceError, match="no blocked layout on this CPU"):
        nchwc.infer("ReorderInput", {}, [blocked(1, 8, 2, 2)], 1)


def test_unknown_operators_have_no_meaning():
    assert nchwc.infer("Upsample", {}, [blocked(1, BLOCK, 2, 2)], 1) == (None,)
    with pytest.raises(NotImplementedError, match="Upsample"):
        nchwc.run("Upsample", {}, [np.zeros((1, BLOCK, 2, 2), np.float32)])
    with pytest.raises(NotImplementedError, match="Softplus"):
        nchwc.run("Conv", {"activation": "Softplus"}, [np.zeros((1, BLOCK, 1, 1)), np.zeros((BLOCK, BLOCK, 1, 1))])
