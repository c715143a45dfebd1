"""Views of the bodies of If, Loop and Scan: each as a graph of its own, in which rules find what they find in a model.

The inputs of a view are the formal inputs of the body, and the outer values that it reads by name; outer constants are
its constants, too. A value that goes round a loop has a type where the body gives back what it was given: by induction
that is the type at every turn. Where its shape may change it has none, and so no rule touches what depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import onnx

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.external_data import is_external
from graph_rewrite.onnx_files.loading import ModelLoadError, graph_of, static_type
from graph_rewrite.onnx_files.normalisation.constant_folding import FoldConstants
from graph_rewrite.onnx_files.normalisation.dead_nodes import RemoveDeadNodes
from graph_rewrite.onnx_files.normalisation.node_merging import MergeNodes
from graph_rewrite.system.deadline import check_time

FIRST_SCAN = 9
"""The first opset whose Scan has no axis for batches of its own."""
MOST_BYTES = 32 << 20
"""Largest body that is viewed: each rewrite copies it."""

_Types = Sequence[TensorType | None]
Operand = tuple[TensorType | None, Constant | None]
"""Type of a value that a node reads, where it is static, and its elements where they are known."""


@dataclass(frozen=True, slots=True)
class BodyViews:
    """The views of a node's bodies, by attribute, and the operands that they were made for."""

    operands: tuple[Operand, ...]
    views: Mapping[str, Graph]

    def holds(self, operands: Sequence[Operand]) -> bool:
        """Tell whether the views hold for these operands: graphs of different shapes may share a node."""
        return all(
            type == known_type and constant is known
            for (type, constant), (known_type, known) in zip(operands, self.operands, strict=True)
        )


@dataclass(frozen=True, slots=True)
class _Interface:
    """The types of a body's formal inputs, and the outputs by which some of them come back, both by position."""

    types: _Types
    back: Mapping[int, int]


def body_views(graph: Graph, node: Node) -> Mapping[str, Graph]:
    """Return the bodies of a node of `graph` as graphs, by the names of the attributes that hold them. Bodies of other
    operators than If, Loop and Scan are left out, and those that break the standard."""
    if not node.opaque or node.domain or node.op not in _INTERFACES or node.proto is None:
        return {}
    operands = operands_of(graph, node)
    known = node.bodies
    if not isinstance(known, BodyViews) or not known.holds(operands):
        node.bodies = known = BodyViews(operands, dict(_views(graph, node, node.proto)))
    return known.views


def operands_of(graph: Graph, node: Node) -> tuple[Operand, ...]:
    """Return type and constant of each value that a node reads."""
    return tuple((None, None) if v is None else (graph.types.get(v), graph.constants.get(v)) for v in node.inputs)


def _views(graph: Graph, node: Node, proto: onnx.NodeProto) -> Iterator[tuple[str, Graph]]:
    for attribute in proto.attribute:
        if not attribute.HasField("g") or not _is_plain(attribute.g):
            continue
        check_time()
        interface = _INTERFACES[node.op](graph, node, attribute.g)
        view = None if interface is None else _view(graph, node, attribute.g, interface)
        if view is not None:
            yield attribute.name, view


def _is_plain(body: onnx.GraphProto) -> bool:
    """Tell whether a body is small, all its tensors lie in it, and no formal input has a default."""
    if body.ByteSize() > MOST_BYTES:
        return False
    tensors = [*body.initializer, *(a.t for n in body.node for a in n.attribute if a.HasField("t"))]
    formal = {info.name for info in body.input}
    return formal.isdisjoint(t.name for t in body.initializer) and not any(map(is_external, tensors))


def _view(graph: Graph, node: Node, body: onnx.GraphProto, interface: _Interface) -> Graph | None:
    """Return the view with the types that hold at every turn."""
    types = list(interface.types)
    while True:
        try:
            view = _typed(_with_inputs(graph, node, body, types))
        except ModelLoadError:
            return None
        other = [i for i, k in interface.back.items() if types[i] not in (None, view.types.get(view.outputs[k]))]
        if not other:
            return view
        for i in other:
            types[i] = None


def _with_inputs(graph: Graph, node: Node, body: onnx.GraphProto, types: _Types) -> Graph:
    """Return a body as it stands, as a graph whose inputs have these types."""
    outer = dict(zip(node.captures, _captured(node), strict=True))
    model = onnx.ModelProto(ir_version=graph.header.ir_version)
    model.functions.extend(graph.header.functions)
    for entry in graph.header.opset_import:
        standard = entry.domain in ("", "ai.onnx")
        model.opset_import.add(domain=entry.domain, version=graph.opset if standard else entry.version)
    model.graph.CopyFrom(body)
    # No scope around has this name: what a rewrite brings in is called after it.
    model.graph.name = "/".join((graph.header.graph.name, *(graph.names.get(value, "") for value in node.outputs[:1])))
    for field in ("input", "value_info"):
        model.graph.ClearField(field)
    model.graph.input.extend(_info(info.name, type) for info, type in zip(body.input, types, strict=True))
    model.graph.input.extend(_info(name, graph.types.get(value)) for name, value in outer.items())
    for output in model.graph.output:
        output.ClearField("type")
    view = graph_of(model, f"the body of {node.op}")
    constants = {
        value: graph.constants[known]
        for value in view.inputs
        if (known := outer.get(view.names[value], -1)) in graph.constants
    }
    declared = view.header.graph.input
    left = [info for info, value in zip(declared, view.inputs, strict=True) if value not in constants]
    del declared[:]
    declared.extend(left)
    inputs = tuple(value for value in view.inputs if value not in constants)
    return replace(view, inputs=inputs, constants={**view.constants, **constants}, memo=GraphMemo())


def _typed(view: Graph) -> Graph:
    """Return a view with constants folded, and with the types that inference can tell, through nodes with bodies."""
    while True:
        view = FoldConstants().run(view).graph
        found = {
            value: type
            for node in view.order()
            if node.opaque and any(view.types.get(value) is None for value in node.outputs)
            for value, type in zip(node.outputs, _result_types(view, node), strict=True)
            if type is not None and view.types.get(value) is None
        }
        if not found:
            return RemoveDeadNodes().run(MergeNodes().run(view).graph).graph
        view = replace(view, types={**view.types, **found}, memo=GraphMemo())


def _result_types(graph: Graph, node: Node) -> list[TensorType | None]:
    """Return the types of a node's results that its bodies tell: an If's where its branches agree, and those of the
    values that a Loop or Scan carries along."""
    none = list[TensorType | None]([None] * len(node.outputs))
    views = body_views(graph, node)
    if node.op == "If":
        found = [[view.types.get(value) for value in view.outputs] for view in views.values()]
        if len(found) != 2 or any(len(types) != len(node.outputs) for types in found):
            return none
        return [one if one == other else None for one, other in zip(*found, strict=True)]
    view = views.get("body")
    if view is None:
        return none
    back = _INTERFACES[node.op](graph, node, _body_of(node))
    assert back is not None
    first = 1 if node.op == "Loop" else 0
    carried = {k - first: view.types.get(view.outputs[k]) for i, k in back.back.items() if _is_proven(view, i, k)}
    return [carried.get(i) for i in range(len(node.outputs))]


def _is_proven(view: Graph, formal: int, result: int) -> bool:
    type = view.types.get(view.inputs[formal])
    return type is not None and type == view.types.get(view.outputs[result])


def _body_of(node: Node) -> onnx.GraphProto:
    assert node.proto is not None
    body: onnx.GraphProto = next(attribute.g for attribute in node.proto.attribute if attribute.name == "body")
    return body


def _info(name: str, type: TensorType | None) -> onnx.ValueInfoProto:
    if type is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, type.dtype, type.shape)


def _captured(node: Node) -> tuple[int, ...]:
    outer = node.inputs[len(node.inputs) - len(node.captures) :]
    return tuple(value for value in outer if value is not None)


def _explicit(graph: Graph, node: Node) -> list[TensorType | None]:
    values = node.inputs[: len(node.inputs) - len(node.captures)]
    return [None if value is None else graph.types.get(value) for value in values]


def _of_branch(graph: Graph, node: Node, body: onnx.GraphProto) -> _Interface | None:
    return None if body.input else _Interface((), {})


def _of_loop(graph: Graph, node: Node, body: onnx.GraphProto) -> _Interface | None:
    given = _explicit(graph, node)[2:]
    if len(body.input) != 2 + len(given) or len(body.output) <= len(given):
        return None
    # ONNX Runtime makes the number of the turn and the condition of the rank that the body declares.
    own = [type if type is not None and type.size == 1 else None for type in map(_declared, body.input[:2])]
    return _Interface((*own, *given), {2 + i: 1 + i for i in range(len(given))})


def _of_scan(graph: Graph, node: Node, body: onnx.GraphProto) -> _Interface | None:
    given, scanned = _explicit(graph, node), int(node.attrs.get("num_scan_inputs", 0))
    states = len(given) - scanned
    axes = node.attrs.get("scan_input_axes", (0,) * scanned)
    if graph.opset < FIRST_SCAN or states < 0 or len(axes) != scanned or len(body.input) != len(given):
        return None
    slices = [_slice(type, axis) for type, axis in zip(given[states:], axes, strict=True)]
    return _Interface((*given[:states], *slices), {i: i for i in range(min(states, len(body.output)))})


def _declared(info: onnx.ValueInfoProto) -> TensorType | None:
    return static_type(info.type)


def _slice(type: TensorType | None, axis: int) -> TensorType | None:
    """Return the type of what a Scan reads at one turn."""
    if type is None or not -len(type.shape) <= axis < len(type.shape):
        return None
    axis %= len(type.shape)
    return TensorType(type.dtype, type.shape[:axis] + type.shape[axis + 1 :])


_INTERFACES = {"If": _of_branch, "Loop": _of_loop, "Scan": _of_scan}
