"""Structural fingerprints: equal for one architecture, different for another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite import load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay import fingerprint
from tests.graph_rewrite.replay.models import network


def reshaped(folder: Path, target: list[int]) -> Graph:
    """A reshape to a constant shape."""
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.array(target, np.int64), "shape")],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "r.onnx")
    return load(folder / "r.onnx")


def branching(folder: Path, constant: float, size: int = 3) -> Graph:
    """An If whose branches add a weight that their subgraphs hold."""

    def branch(name: str, value: float) -> onnx.GraphProto:
        weight = numpy_helper.from_array(np.full(size, value, np.float32), f"{name}_w")
        out = helper.make_tensor_value_info(f"{name}_y", TensorProto.FLOAT, [size])
        return helper.make_graph(
            [helper.make_node("Add", ["x", f"{name}_w"], [f"{name}_y"])], name, [], [out], [weight]
        )

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("t", constant), else_branch=branch("e", constant + 1)
    )
    inputs = [
        helper.make_tensor_value_info("c", TensorProto.BOOL, []),
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [size]),
    ]
    graph = helper.make_graph([node], "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [size])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), folder / "i.onnx")
    return load(folder / "i.onnx")


class TestFingerprint:
    def test_weights_and_names_do_not_count(self, tmp_path: Path) -> None:
        one = fingerprint(network(tmp_path))
        assert fingerprint(network(tmp_path, seed=5, prefix="other_", factor=-1.0)) == one

    @pytest.mark.parametrize("change", [{"batch": 3}, {"width": 6}, {"classes": 4}])
    def test_sizes_count_unless_any_will_do(self, tmp_path: Path, change: dict[str, int]) -> None:
        one, other = network(tmp_path), network(tmp_path, **change)
        assert fingerprint(one) != fingerprint(other)
        assert fingerprint(one, any_size=True) == fingerprint(other, any_size=True)

    @pytest.mark.parametrize("change", [{"layers": 4}, {"activation": "Tanh"}])
    def test_operators_count_always(self, tmp_path: Path, change: dict[str, object]) -> None:
        one, other = network(tmp_path), network(tmp_path, **change)
        assert fingerprint(one, any_size=True) != fingerprint(other, any_size=True)

    def test_integers_that_decide_structure(self, tmp_path: Path) -> None:
        one, other = reshaped(tmp_path, [2, 8]), reshaped(tmp_path, [8, 2])
        assert fingerprint(one) == fingerprint(reshaped(tmp_path, [2, 8]))
        assert fingerprint(one) != fingerprint(other)
        assert fingerprint(one, any_size=True) == fingerprint(other, any_size=True)

    def test_weights_of_subgraphs_do_not_count(self, tmp_path: Path) -> None:
        one, other = branching(tmp_path, 1.0), branching(tmp_path, 2.0)
        assert one.hash != other.hash
        assert fingerprint(one) == fingerprint(other)

    def test_equal_constants_may_be_stored_once_or_twice(self, tmp_path: Path) -> None:
        """Freshly initialised weights that are equal are merged; trained ones are not."""
        graph = network(tmp_path)
        first, *others = [value for value, constant in graph.constants.items() if constant.type.shape == (4, 4)]
        merged = network(tmp_path)
        for node_id, node in merged.nodes.items():
            inputs = [first if value == others[0] else value for value in node.inputs]
            merged.nodes[node_id] = node.with_inputs(inputs)
        assert fingerprint(merged) == fingerprint(graph)
