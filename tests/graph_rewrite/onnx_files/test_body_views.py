"""Views of bodies: what is known of the values in them, and which bodies have none."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import numpy as np
import onnx
import pytest

from graph_rewrite import Graph, load
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files import body_views as views
from graph_rewrite.onnx_files.body_views import body_views
from graph_rewrite.onnx_files.normalisation import normalise
from tests.graph_rewrite.body_models import body_model
from tests.graph_rewrite.sample_models import parsed, weights


def opened(model: onnx.ModelProto) -> Graph:
    return normalise(load(model))[0]


def holder(graph: Graph) -> Node:
    return next(node for node in graph.order() if node.opaque)


def view_of(model: onnx.ModelProto, attribute: str = "body") -> Graph:
    graph = opened(model)
    return body_views(graph, holder(graph))[attribute]


def shapes(view: Graph) -> dict[str, tuple[int, ...] | None]:
    named = {name: view.types.get(value) for value, name in view.names.items()}
    return {name: None if type is None else type.shape for name, type in named.items()}


def test_inputs_of_a_loop_are_its_own_and_what_it_reads_from_outside() -> None:
    view = view_of(body_model("a chain within Loop"))
    assert [view.names[value] for value in view.inputs] == ["i", "on", "acc"]
    assert {view.names[value] for value in view.constants} >= {"a", "half"}
    assert shapes(view)["acc"] == shapes(view)["row"] == (4, 4)


def test_outer_values_that_are_no_constants_are_inputs() -> None:
    view = view_of(body_model("chains within If"), "then_branch")
    assert [view.names[value] for value in view.inputs] == ["x"]


def test_a_scan_reads_slices() -> None:
    assert shapes(view_of(body_model("a chain within Scan")))["e"] == (4,)
    model = body_model("a chain within Scan")
    model.graph.input[1].type.tensor_type.shape.dim[0].dim_value = 4
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_value = 3
    model.graph.node[0].attribute.append(onnx.helper.make_attribute("scan_input_axes", [-1]))
    assert shapes(view_of(model))["e"] == (4,)


def test_a_value_that_grows_has_no_shape() -> None:
    known = shapes(view_of(body_model("a value that grows within Loop")))
    assert (known["acc"], known["q"], known["next"]) == (None, None, None)
    assert known["t"] == (1, 4)


def test_a_declared_shape_is_not_believed() -> None:
    model = body_model("a value that grows within Loop")
    for info in (model.graph.node[0].attribute[0].g.input[2], model.graph.node[0].attribute[0].g.output[1]):
        info.type.tensor_type.shape.dim[0].dim_value = 1
    assert shapes(view_of(model))["acc"] is None


def test_types_go_through_nested_loops() -> None:
    known = shapes(view_of(body_model("a chain within Loop within Loop")))
    assert known["inner"] == known["next"] == known["acc"] == (4, 4)


def test_shapes_of_another_graph_give_other_views() -> None:
    model = parsed(
        "(bool c, float[N,4] x) => (float[N,4] y) { y = If(c) <"
        " then_branch = p () => (float[N,4] u) { u = Exp(x) }, else_branch = q () => (float[N,4] v) { v = Abs(x) }> }"
    )
    small = load(model, {"x": (2, 4)})
    wider = {v: TensorType(t.dtype, (7, 4)) for v, t in small.types.items() if t is not None and t.rank}
    large = replace(small, types={**small.types, **wider}, memo=GraphMemo())
    node = holder(small)
    assert large.nodes[node.id] is node
    for _ in range(2):
        assert shapes(body_views(small, node)["then_branch"])["x"] == (2, 4)
        assert shapes(body_views(large, node)["then_branch"])["x"] == (7, 4)


@pytest.mark.parametrize("name", ["acc", "t"])
def test_a_body_that_defines_a_name_twice_has_none(name: str) -> None:
    graph = opened(body_model("a chain within Loop"))
    node = holder(graph)
    assert node.proto is not None
    body = node.proto.attribute[0].g
    body.node[-1].output[0], body.output[2].name = name, name
    assert body_views(graph, node) == {}


def test_a_large_body_has_none() -> None:
    graph = opened(body_model("a chain within Loop"))
    with mock.patch.object(views, "MOST_BYTES", 100):
        assert body_views(graph, holder(graph)) == {}


def test_old_scans_and_other_operators_have_none() -> None:
    graph = opened(body_model("a chain within Scan"))
    node = holder(graph)
    with mock.patch.object(views, "FIRST_SCAN", graph.opset + 1):
        assert body_views(graph, node) == {}
    call = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 20, "own" : 1]>
        main (float[4] x) => (float[4] y) { y = own.f(x) }
        <domain: "own", opset_import: ["" : 19]> f (p) => (r) { r = Exp(p) }"""
    )
    graph = load(call)
    assert body_views(graph, holder(graph)) == {}


def test_constants_of_a_body_are_folded() -> None:
    model = body_model("chains within If")
    body = model.graph.node[0].attribute[0].g
    value = onnx.numpy_helper.from_array(np.float32(2.0))
    body.node.insert(0, onnx.helper.make_node("Constant", [], ["two"], value=value))
    body.node[-1].input[1] = "two"
    view = view_of(model, "then_branch")
    assert not any(node.op == "Constant" for node in view.nodes.values())
    assert any(view.names.get(value) == "two" for value in view.constants)


def test_weights_of_a_body_are_constants() -> None:
    model = body_model("chains within If")
    model.graph.node[0].attribute[0].g.initializer.append(weights("own", 4, 4))
    model.graph.node[0].attribute[0].g.node[2].input[1] = "own"
    view = view_of(model, "then_branch")
    assert {view.names[value] for value in view.constants} >= {"own"}
