"""The order in which a file lists the nodes: always topological, as asked for, and without any effect on outputs."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph_rewrite import Graph, load, save
from graph_rewrite.onnx_files.node_order import NODE_ORDERS, listed_nodes
from graph_rewrite.onnx_files.saving import to_proto
from graph_rewrite.runtime import NODE_ORDER
from tests.graph_rewrite.rules.checking import model, run_onnxruntime

RESIDUAL = model(
    "(float[2,4] x) => (y, z) { a = Relu(x) b = Tanh(a) c = Abs(a) d = Neg(c) e = Add(b, d) y = Exp(e) z = Sin(b) }"
)
OPERATORS = ("Relu", "Tanh", "Add", "Mul", "Sub")


def asking(graph: Graph, order: str) -> Graph:
    return graph.with_session_settings({NODE_ORDER: order})


def operators(graph: Graph) -> list[str]:
    return [node.op for node in listed_nodes(graph)]


def test_a_walk_from_the_outputs_runs_one_branch_before_the_other() -> None:
    assert operators(RESIDUAL) == ["Relu", "Tanh", "Abs", "Neg", "Add", "Exp", "Sin"]
    assert operators(asking(RESIDUAL, "last_input_first")) == ["Relu", "Abs", "Neg", "Tanh", "Add", "Exp", "Sin"]
    assert operators(asking(RESIDUAL, "first_input_first")) == ["Relu", "Tanh", "Abs", "Neg", "Add", "Exp", "Sin"]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Return a random graph; the last value is an output, and perhaps others."""
    values = ["x"]
    body = []
    for i in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(OPERATORS))
        inputs = [draw(st.sampled_from(values)) for _ in range(1 if op in OPERATORS[:2] else 2)]
        body.append(f"v{i} = {op}({', '.join(inputs)})")
        values.append(f"v{i}")
    outputs = sorted({values[-1], *draw(st.lists(st.sampled_from(values[1:]), max_size=2))})
    return model(f"(float[2,4] x) => ({', '.join(outputs)}) {{ {' '.join(body)} }}")


@given(graphs(), st.sampled_from(sorted(NODE_ORDERS)))
def test_every_node_comes_once_and_behind_what_it_needs(graph: Graph, order: str) -> None:
    listed = listed_nodes(asking(graph, order))
    assert sorted(node.id for node in listed) == sorted(graph.nodes)
    known = {*graph.inputs, *graph.constants}
    for node in listed:
        assert known.issuperset(value for value in node.inputs if value is not None)
        known.update(node.outputs)


@pytest.mark.parametrize("order", sorted(NODE_ORDERS))
def test_a_file_lists_its_nodes_as_asked_and_gives_equal_outputs(order: str, tmp_path: Path) -> None:
    ordered = asking(RESIDUAL, order)
    file = save(ordered, tmp_path / "model.onnx")
    assert [node.op_type for node in onnx.load(file).graph.node] == operators(ordered)
    assert ordered.hash != RESIDUAL.hash, "the order is measured, so a graph with another one is another graph"
    assert load(file).hash == load(save(RESIDUAL, tmp_path / "plain.onnx")).hash
    feeds = {"x": np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)}
    for one, other in zip(run_onnxruntime(ordered, feeds), run_onnxruntime(RESIDUAL, feeds), strict=True):
        np.testing.assert_array_equal(one, other)


def test_nodes_that_no_output_needs_come_last() -> None:
    graph = model(
        "(float[2,4] x, bool c) => (y) { s = SequenceEmpty() t = If(c) <then_branch = g () => (float[2,4] a)"
        " { a = Relu(x) }, else_branch = h () => (float[2,4] b) { b = Tanh(x) }> y = Exp(x) }"
    )
    for order in NODE_ORDERS:
        listed = [node.op for node in listed_nodes(asking(graph, order))]
        assert listed[0] == "Exp"
        assert sorted(listed) == sorted(node.op for node in graph.nodes.values())


def test_an_order_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="no node_order is named 'backwards'; there are last_input_first"):
        to_proto(asking(RESIDUAL, "backwards"))
