"""Conversion of a graph to a newer version of ONNX's operator set, node by node.

Where the definition of an operator did not change, or only takes more types, the node stays as it is. Otherwise onnx's
version converter is shown that node alone, with the types of its inputs and with its small constants, and what it makes
of it takes the node's place. So weights, names, functions and foreign operators never pass through the converter, which
would lose some of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import onnx
import onnx_ir
from onnx import version_converter

from graph_rewrite.errors import UserError
from graph_rewrite.ir.constants import from_tensor, tensor_proto
from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.loading import attribute_value
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_types import TypeInferenceError, make_node

_SHOWN = 256
"""Constants up to this many elements are shown to the converter: shapes, axes, scales."""


class ConversionError(UserError):
    """A graph cannot be converted; the message names the operator and the reason."""


def convert_opset(graph: Graph, version: int) -> Graph:
    """Return the same computation in operator set `version` of the standard domain.

    Raises:
        ConversionError: some operator has no equivalent that onnx's version converter knows, or lies in a subgraph
            or function where its types are not known.
    """
    _check_bodies(graph, version)
    editor = GraphEditor(graph)
    known: dict[tuple[Any, ...], onnx.GraphProto | None] = {}
    for node in graph.order():
        if node.domain or since_version(node.op, graph.opset) == since_version(node.op, version):
            continue
        if _only_takes_more_types(node.op, graph.opset, version):
            continue
        if node.opaque:
            _check_same_interface(node.op, graph.opset, version)
            continue
        key = (node.signature, len(node.outputs), *(_seen(graph, value) for value in node.inputs))
        if key not in known:
            known[key] = _convert(graph, node, version)
        converted = known[key]
        if converted is not None:
            _replace(editor, node, converted, version)
    result, _ = editor.finish()
    return replace(result, opset=version, memo=GraphMemo())


def since_version(op: str, version: int) -> int:
    """Return the operator set in which the definition was made that a standard operator has in operator set `version`.

    Raises:
        ConversionError: there is no such operator.
    """
    try:
        return int(onnx.defs.get_schema(op, version).since_version)
    except onnx.defs.SchemaError as error:
        raise ConversionError(f"{op} is no operator of opset {version}") from error


def body_nodes(graph: Graph) -> Iterator[tuple[onnx.NodeProto, int]]:
    """Yield the nodes inside subgraphs and functions, with the operator set that they are written in."""
    for node in graph.nodes.values():
        if node.opaque and node.proto is not None:
            for inner in attribute_graphs(node.proto):
                yield from ((proto, graph.opset) for proto in inner_nodes(inner))
    for function in graph.header.functions:
        version = next((o.version for o in function.opset_import if o.domain in ("", "ai.onnx")), graph.opset)
        body = onnx.GraphProto(node=function.node)
        yield from ((proto, version) for proto in inner_nodes(body))


def _check_bodies(graph: Graph, version: int) -> None:
    for node, old in body_nodes(graph):
        if node.domain in ("", "ai.onnx") and since_version(node.op_type, old) != since_version(node.op_type, version):
            _check_same_interface(node.op_type, old, version)
            if node.op_type == "Split" and old < 18 <= version and len(node.input) < 2:
                raise ConversionError("Split inside a subgraph or function names its parts since opset 18")


def _check_same_interface(op: str, old: int, new: int) -> None:
    """Refuse a changed operator inside a subgraph, unless it only takes more types or new optional attributes.

    Types of values inside subgraphs are not known, so nothing can be converted there; the defaults of new attributes
    are the old behaviour.
    """
    before, after = onnx.defs.get_schema(op, old), onnx.defs.get_schema(op, new)
    attributes = _attributes(after)
    same = _has_same_values(before, after)
    same = same and all(attributes.pop(name, None) == known for name, known in _attributes(before).items())
    same = same and not any(required for _, required, _ in attributes.values())
    if not same:
        raise ConversionError(f"{op} inside a subgraph or function changed between opsets {old} and {new}")


@cache
def _only_takes_more_types(op: str, old: int, new: int) -> bool:
    """Return whether an operator has the same inputs, outputs and attributes in both operator sets."""
    before, after = onnx.defs.get_schema(op, old), onnx.defs.get_schema(op, new)
    return _has_same_values(before, after) and _attributes(before) == _attributes(after)


def _has_same_values(before: onnx.defs.OpSchema, after: onnx.defs.OpSchema) -> bool:
    """Return whether two definitions of an operator have the same inputs and outputs."""
    same = [p.name for p in before.inputs] == [p.name for p in after.inputs]
    same = same and [p.name for p in before.outputs] == [p.name for p in after.outputs]
    # The scale of GroupNormalization came per group, then per channel, under the same name.
    return same and not after.deprecated and before.name != "GroupNormalization"


def _attributes(schema: onnx.defs.OpSchema) -> dict[str, tuple[str, bool, bytes]]:
    return {
        name: (str(a.type), bool(a.required), a.default_value.SerializeToString())
        for name, a in schema.attributes.items()
    }


def _seen(graph: Graph, value: int | None) -> tuple[str, str] | None:
    if value is None:
        return None
    constant = graph.constants.get(value)
    shown = constant is not None and constant.type.size <= _SHOWN
    return str(graph.types[value]), constant.digest if shown and constant is not None else ""


def _convert(graph: Graph, node: Node, version: int) -> onnx.GraphProto | None:
    """Convert a node alone, between values i0, i1, ... and o0, o1, ...; return None where it stays the same."""
    inputs = [None if value is None else f"i{k}" for k, value in enumerate(node.inputs)]
    proto = make_node(node.op, node.domain, node.attrs, inputs, len(node.outputs))
    alone = onnx.GraphProto(name="node", node=[proto])
    for value, name in zip(node.inputs, inputs, strict=True):
        if value is None or name is None:
            continue
        constant = graph.constants.get(value)
        if constant is not None and constant.type.size <= _SHOWN:
            alone.initializer.append(tensor_proto(constant, name))
        else:
            alone.input.append(_info(graph, value, name))
    alone.output.extend(_info(graph, value, f"o{k}") for k, value in enumerate(node.outputs))
    model = onnx.helper.make_model(alone, opset_imports=[onnx.helper.make_opsetid("", graph.opset)])
    try:
        converted = version_converter.convert_version(model, version).graph
    except (RuntimeError, version_converter.ConvertError) as error:
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise ConversionError(f"{node.op}: {reason}") from error
    same = len(converted.node) == 1 and _plain(converted.node[0]) == _plain(proto)
    return None if same else converted


def _info(graph: Graph, value: int, name: str) -> onnx.ValueInfoProto:
    type = graph.types[value]
    if type is None:
        return onnx.ValueInfoProto(name=name)
    return onnx.helper.make_tensor_value_info(name, type.dtype, type.shape)


def _plain(node: onnx.NodeProto) -> tuple[object, ...]:
    attributes = sorted((a.name, a.SerializeToString(deterministic=True)) for a in node.attribute)
    return node.op_type, node.domain, list(node.input), list(node.output), attributes


def _replace(editor: GraphEditor, node: Node, converted: onnx.GraphProto, version: int) -> None:
    values = {f"i{k}": value for k, value in enumerate(node.inputs) if value is not None}
    values |= {f"o{k}": value for k, value in enumerate(node.outputs)}
    for tensor in converted.initializer:
        if tensor.name not in values:
            constant = from_tensor(onnx_ir.serde.deserialize_tensor(tensor))
            values[tensor.name] = editor.new_value(constant.type, constant)
    rank = editor.ranks[node.id]
    loaded = node.proto.name if node.proto is not None else ""
    editor.remove(node)
    for i, proto in enumerate(converted.node):
        inputs = [values[name] if name else None for name in proto.input]
        for name in proto.output:
            if name not in values:
                values[name] = editor.new_value(None)
        outputs = [values[name] for name in proto.output]
        attrs = {attribute.name: attribute_value(attribute) for attribute in proto.attribute}
        made = editor.insert(
            proto.op_type, proto.domain, attrs, inputs, outputs, rank + i / (len(converted.node) + 1),
            origin=(loaded, "" if proto.op_type == node.op else proto.op_type),
        )  # fmt: skip
        _check_types(editor, made, version)


def _check_types(editor: GraphEditor, node: Node, version: int) -> None:
    """Infer the types of the results of a converted node; where they were known they must be the same."""
    inputs = [None if v is None else (editor.types[v], editor.constants.get(v)) for v in node.inputs]
    try:
        found = infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), version, node.signature)
    except TypeInferenceError as error:
        raise ConversionError(str(error)) from error
    for value, type in zip(node.outputs, found, strict=True):
        known = editor.types[value]
        if known is not None and type is not None and known != type:
            raise ConversionError(f"{node.op} would give {type} instead of {known} in opset {version}")
        editor.types[value] = known or type
