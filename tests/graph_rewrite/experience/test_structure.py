"""Windows as plain values: complete enough to be made again, and without weights."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.errors import UserError
from graph_rewrite.experience.rebuilding import graph_of
from graph_rewrite.experience.records import canonical
from graph_rewrite.experience.structure import is_written, structure_of, value_names
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.replay import fingerprint


def _graph(nodes: list[object], weights: dict[str, np.ndarray], output: str, shape: list[int]) -> Graph:
    given = helper.make_tensor_value_info("secret_input", TensorProto.FLOAT, [2, 4])
    result = helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)
    stored = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", [given], [result], stored),
        opset_imports=[helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)], ir_version=10,
    )  # fmt: skip
    return load(model)


RNG = np.random.default_rng(0)
WEIGHTS = {
    "secret_matrix": RNG.standard_normal((4, 6), np.float32), "secret_bias": RNG.standard_normal(6, np.float32),
    "secret_scale": np.array(0.7313572, np.float32), "half": np.array(0.5, np.float32),
    "root": np.array(2.0**0.5, np.float32), "shape": np.array([3, 4], np.int64),
    "secret_ids": np.arange(100, dtype=np.int64) % 2,
}  # fmt: skip
NODES = [
    helper.make_node("MatMul", ["secret_input", "secret_matrix"], ["secret_a"], "secret_node"),
    helper.make_node("Add", ["secret_a", "secret_bias"], ["b"]),
    helper.make_node("Mul", ["b", "secret_scale"], ["c"]),
    helper.make_node("Mul", ["c", "half"], ["d"]),
    helper.make_node("Div", ["d", "root"], ["e"]),
    helper.make_node("QuickGelu", ["e"], ["f"], domain="com.microsoft", alpha=1.702),
    helper.make_node("Reshape", ["f", "shape"], ["g"]),
    helper.make_node("Gather", ["g", "secret_ids"], ["y"], axis=0),
]


def test_a_window_is_made_again_with_the_same_structure() -> None:
    graph = _graph(NODES, WEIGHTS, "y", [100, 4])
    values = json.loads(canonical(structure_of(graph, value_names(graph))))
    again = graph_of(values)
    assert fingerprint(again) == fingerprint(graph) == values["fingerprint"]
    assert structure_of(again, value_names(again)) == values
    assert [node.op for node in again.order()] == [node.op for node in graph.order()]
    gelu = next(node for node in again.order() if node.op == "QuickGelu")
    assert gelu.attrs["alpha"] == pytest.approx(1.702)


def test_no_weight_and_no_name_is_stored() -> None:
    graph = _graph(NODES, WEIGHTS, "y", [100, 4])
    values = structure_of(graph, value_names(graph))
    assert "secret" not in canonical(values)
    kept = [constant["values"] for constant in values["constants"].values() if "values" in constant]
    assert kept == [[0.5], [pytest.approx(2.0**0.5)], [3, 4]]


@given(st.floats(1e-4, 1e4), st.booleans())
def test_numbers_that_a_person_wrote_are_kept(value: float, negative: bool) -> None:
    written = np.float32(float(f"{value:.3g}") * (-1 if negative else 1))
    assert is_written(written, 5)
    assert is_written(np.float32(np.sqrt(float(f"{value:.3g}"))), 5)
    assert is_written(np.float32(1.0 / float(f"{value:.3g}")), 5)


def test_trained_numbers_are_not() -> None:
    drawn = np.random.default_rng(1).standard_normal(4000, np.float32)
    assert sum(is_written(number, 5) for number in drawn) < 0.05 * len(drawn)
    assert not any(all(is_written(number, 5) for number in three) for three in drawn.reshape(-1, 4))


@pytest.mark.parametrize("value", [0.0, np.inf, -np.inf, np.nan, np.finfo(np.float32).min, 0.044715, 0.7978845608])
def test_limits_and_constants_of_mathematics_are_kept(value: float) -> None:
    assert is_written(np.float32(value), 5)


def test_what_cannot_be_made_again_says_so() -> None:
    with pytest.raises(UserError, match="no structure of a window"):
        graph_of({"opset": 20})
    graph = _graph(NODES[:1], WEIGHTS, "secret_a", [2, 6])
    values = structure_of(graph, value_names(graph))
    values["nodes"][0]["attrs"] = {"body": {"opaque": "GRAPH"}}
    with pytest.raises(UserError, match="kind alone"):
        graph_of(values)
