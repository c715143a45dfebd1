"""Sizes of graphs: weights, and activations that live at one time."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from graph_rewrite import Graph, load
from graph_rewrite.ir.memory import memory_of, weight_bytes
from tests.graph_rewrite.sample_models import parsed, weights

KILO = 256 * 4
"""Bytes of a float[256]."""


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[onnx.ModelProto], Graph]:
    def make(model: onnx.ModelProto) -> Graph:
        onnx.save(model, tmp_path / "model.onnx")
        return load(tmp_path / "model.onnx")

    return make


def test_a_chain_needs_its_input_its_output_and_one_value_between(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    chain = "(float[256] x) => (float[256] y) { a = Neg(x) b = Neg(a) c = Neg(b) y = Neg(c) }"
    # x, held by the caller, and two neighbours.
    assert memory_of(opened(parsed(chain))).peak == 3 * KILO


def test_what_is_read_late_stays_alive(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    late = "(float[256] x) => (float[256] y) { a = Neg(x) b = Abs(a) c = Relu(b) y = Add(c, a) }"
    assert memory_of(opened(parsed(late))).peak == 4 * KILO


def test_an_expansion_is_the_peak(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    wide = (
        "(float[256] x) => (float[256] y) { a = Concat<axis = 0>(x, x, x, x) b, c, d, y = Split<num_outputs = 4>(a) }"
    )
    assert memory_of(opened(parsed(wide))).peak == (1 + 4 + 4) * KILO


def test_weights_count_by_type_wherever_they_lie(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    body = "(float[256] x) => (float[256] y) {{ {constant} t = Mul(x, w) y = Add(t, t) }}"
    initializer = opened(parsed(body.format(constant=""), weights("w", 256)))
    attribute = opened(parsed("(float[256] x) => (float[256] y) { y = Mul(x, w) }", weights("w", 256)))
    assert weight_bytes(initializer) == weight_bytes(attribute) == KILO
    half = opened(parsed("(float16[256] x) => (float16[256] y) { y = Mul(x, w) }", weights("w", 256, dtype="float16")))
    assert weight_bytes(half) == KILO // 2
    assert memory_of(half).peak == KILO // 2 * 3


def test_a_constant_node_of_a_file_counts(opened: Callable[[onnx.ModelProto], Graph]) -> None:
    node = onnx.helper.make_node("Constant", [], ["w"], value=weights("w", 256))
    model = parsed("(float[256] x) => (float[256] y) { y = Neg(x) }")
    model.graph.node.insert(0, node)
    model.graph.node[1].op_type = "Mul"
    model.graph.node[1].input.append("w")
    assert weight_bytes(opened(model)) == KILO
