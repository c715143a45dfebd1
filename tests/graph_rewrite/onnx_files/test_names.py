"""Names in saved models: those of the loaded file stay where values survive, others say where they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import Rewriter, load
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.rewriting.rule import Rule


class TanhInSteps(Rule):
    """Tanh(x) = Tanh(x * 2 * 0.5)"""

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Tanh(op.Mul(op.Mul(x, op.constant(np.float32([2.0]))), op.constant(np.float32([0.5]))))


class MulAsAdd(Rule):
    """x * c = x * c + 0"""

    def source(self, op: Any, x: Any, c: Any) -> Any:
        return op.Mul(x, c)

    def target(self, op: Any, m: Any, x: Any, c: Any) -> Any:
        return op.Sum(op.Mul(x, c))


def _model(names: tuple[str, str, str] = ("in/relu", "act", "out/relu")) -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], names[0]),
        helper.make_node("Tanh", ["a"], ["b"], names[1]),
        helper.make_node("Relu", ["b"], ["y"], names[2]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    return helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 20)]
    )


def _applied(graph: Graph, rule: Rule) -> Graph:
    return Rewriter([rule], "site", deployment=False).candidates(graph)[0].apply()


def _names(graph: Graph) -> tuple[list[str], list[str], list[str]]:
    """Names of the nodes, of their results, and of the initializers of a saved graph."""
    proto = to_proto(graph).graph
    values = [name for node in proto.node for name in node.output]
    return [node.name for node in proto.node], values, [tensor.name for tensor in proto.initializer]


def test_surviving_nodes_and_values_keep_their_names_and_new_ones_say_where_they_come_from() -> None:
    nodes, values, constants = _names(_applied(load(_model()), TanhInSteps()))
    assert nodes == ["in/relu", "act/TanhInSteps", "act/TanhInSteps_2", "act/TanhInSteps_3", "out/relu"]
    assert values == ["a", "act/TanhInSteps_out", "act/TanhInSteps_2_out", "b", "y"]
    assert constants == ["act/TanhInSteps_in1", "act/TanhInSteps_2_in1"]


def test_a_node_that_is_rewritten_again_is_called_after_the_loaded_one() -> None:
    nodes, _, _ = _names(_applied(_applied(load(_model()), TanhInSteps()), MulAsAdd()))
    assert nodes == ["in/relu", "act/MulAsAdd", "act/MulAsAdd_2", "act/TanhInSteps", "act/TanhInSteps_2", "out/relu"]


def test_a_node_without_a_name_lends_that_of_its_result() -> None:
    nodes, values, _ = _names(_applied(load(_model(("", "", ""))), TanhInSteps()))
    assert nodes == ["", "b/TanhInSteps", "b/TanhInSteps_2", "b/TanhInSteps_3", ""]
    assert values == ["a", "b/TanhInSteps_out", "b/TanhInSteps_2_out", "b", "y"]


@pytest.mark.parametrize("taken", ["act/TanhInSteps", "act/TanhInSteps_2"])
def test_names_that_the_file_uses_already_are_not_given_again(taken: str) -> None:
    nodes, _, _ = _names(_applied(load(_model((taken, "act", "out/relu"))), TanhInSteps()))
    assert nodes[0] == taken
    assert len(set(nodes)) == 5


def test_a_saved_result_can_be_rewritten_and_saved_again() -> None:
    once = to_proto(_applied(load(_model()), TanhInSteps()))
    nodes, values, _ = _names(_applied(load(once), MulAsAdd()))
    assert len(set(nodes)) == len(nodes) == 6
    assert len(set(values)) == len(values)
    assert "act/TanhInSteps/MulAsAdd" in nodes
    onnx.checker.check_model(to_proto(_applied(load(once), MulAsAdd())), full_check=True)


def test_names_do_not_change_what_a_graph_is() -> None:
    before, after = load(_model()), load(_model(("p", "q", "r")))
    assert _applied(before, TanhInSteps()).hash == _applied(after, TanhInSteps()).hash


def test_a_node_in_another_opset_keeps_its_name() -> None:
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 3]) for name in "xy"]
    node = helper.make_node("ReduceSum", ["x"], ["y"], "total", axes=[1], keepdims=0)
    info[1].type.tensor_type.shape.ClearField("dim")
    info[1].type.tensor_type.shape.dim.add(dim_value=2)
    graph = helper.make_graph([node], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)])
    lifted, _ = normalise(load(model))
    assert lifted.opset > 11
    assert _names(lifted)[0] == ["total"]
