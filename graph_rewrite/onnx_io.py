"""ONNX <-> Graph, lossless: what the graph does not model is kept bit by bit and written back."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnx_ir
from google.protobuf.message import DecodeError
from onnx import AttributeProto

from graph_rewrite.constants import Constant, from_tensor
from graph_rewrite.ir import AttrValue, Graph, Node, RawAttr, TensorType, topological_ranks
from graph_rewrite.types import TypeInferenceError, infer

_PLAIN = (
    AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING,
    AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS,
)  # fmt: skip


class ModelLoadError(ValueError):
    """A file is not an ONNX model that can be read; the message says what is wrong and what to do."""


def load(source: str | os.PathLike[str] | onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None) -> Graph:
    """Read an ONNX model. Large tensors stay in their file and are memory-mapped when used.

    `shapes` fixes the shapes of inputs by name, for models with symbolic dimensions.

    Raises:
        ModelLoadError: no such file, not an ONNX model, truncated, or external data missing.
    """
    if isinstance(source, onnx.ModelProto):
        model, folder = source, Path()
    else:
        model, folder = _read(Path(source)), Path(source).resolve().parent
    return _Loader(model, folder, shapes or {}).graph()


def _read(path: Path) -> onnx.ModelProto:
    try:
        model = onnx.load(str(path), load_external_data=False)
    except FileNotFoundError as error:
        raise ModelLoadError(f"{path}: no such file") from error
    except (DecodeError, OSError, ValueError) as error:
        raise ModelLoadError(f"{path}: not a readable ONNX model ({error}); is the file complete?") from error
    if not model.HasField("graph") or not model.opset_import:
        raise ModelLoadError(f"{path}: holds no graph or names no operator set; is it an ONNX model, and complete?")
    for tensor in _external(model.graph):
        _check_external(path, tensor)
    return model


def _external(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    return (t for t in graph.initializer if t.data_location == onnx.TensorProto.EXTERNAL)


def _check_external(path: Path, tensor: onnx.TensorProto) -> None:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    file = path.resolve().parent / entries.get("location", "")
    if not file.is_file():
        raise ModelLoadError(f"{path}: the weights of {tensor.name!r} should lie in {file}, which does not exist")
    end = int(entries.get("offset", 0)) + int(entries.get("length", 0))
    if file.stat().st_size < end:
        raise ModelLoadError(f"{path}: {file} is truncated ({file.stat().st_size} bytes, {tensor.name!r} ends at {end})")


class _Loader:
    def __init__(self, model: onnx.ModelProto, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._model, self._folder, self._shapes = model, folder, dict(shapes)
        self._functions = {(f.domain, f.name) for f in model.functions}
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._types: dict[int, TensorType | None] = {}
        self._constants: dict[int, Constant] = {}
        self._declared = {v.name: v for v in (*model.graph.value_info, *model.graph.input, *model.graph.output)}
        self._opset = next((o.version for o in model.opset_import if o.domain in ("", "ai.onnx")), 1)

    def graph(self) -> Graph:
        proto = self._model.graph
        declared_inputs = {i.name for i in proto.input}
        unknown = sorted(set(self._shapes) - declared_inputs)
        if unknown:
            raise ModelLoadError(f"the model has no input {unknown[0]!r}; it has {sorted(declared_inputs)}")
        inputs = tuple(self._value(i.name, self._input_type(i)) for i in proto.input)
        for tensor in proto.initializer:
            if tensor.name not in declared_inputs:
                constant = from_tensor(onnx_ir.serde.deserialize_tensor(tensor, self._folder))
                self._constants[self._value(tensor.name, constant.type)] = constant
        nodes: dict[int, Node] = {}
        pins: dict[str, int] = {}
        for node_id, node_proto in enumerate(proto.node):
            for name in captured_names(node_proto):
                pins[name] = self._value(name)
            nodes[node_id] = self._node(node_id, node_proto)
        outputs = tuple(self._value(o.name) for o in proto.output)
        header = onnx.ModelProto()
        header.CopyFrom(self._model)
        kept = [t for t in proto.initializer if t.name in declared_inputs]
        header.graph.ClearField("node")
        header.graph.ClearField("initializer")
        header.graph.initializer.extend(self._inlined(t) for t in kept)
        return self._finish(nodes, inputs, outputs, tuple(pins.items()), header)

    def _finish(
        self, nodes: dict[int, Node], inputs: tuple[int, ...], outputs: tuple[int, ...],
        pins: tuple[tuple[str, int], ...], header: onnx.ModelProto,
    ) -> Graph:  # fmt: skip
        producer = {value: node.id for node in nodes.values() for value in node.outputs}
        consumers: dict[int, tuple[int, ...]] = {}
        for node in nodes.values():
            for value in node.inputs:
                if value is not None:
                    consumers[value] = (*consumers.get(value, ()), node.id)
        graph = Graph(
            nodes, self._types, self._constants, producer, consumers, {}, inputs, outputs, self._names,
            tuple(o.name for o in self._model.graph.output), pins, header, self._opset, max(len(nodes), len(self._ids)),
        )  # fmt: skip
        graph.ranks = topological_ranks(graph)
        infer_types(graph)
        return graph

    def _inlined(self, tensor: onnx.TensorProto) -> onnx.TensorProto:
        if tensor.data_location != onnx.TensorProto.EXTERNAL:
            return tensor
        loaded = onnx.TensorProto()
        loaded.CopyFrom(tensor)
        onnx.external_data_helper.load_external_data_for_tensor(loaded, str(self._folder))
        loaded.data_location = onnx.TensorProto.DEFAULT
        loaded.ClearField("external_data")
        return loaded

    def _value(self, name: str, type: TensorType | None = None) -> int:
        value = self._ids.get(name)
        if value is None:
            value = self._ids[name] = len(self._ids)
            self._names[value] = name
            if type is None and name in self._declared and not self._shapes:
                type = static_type(self._declared[name].type)
            self._types[value] = type
        return value

    def _input_type(self, info: onnx.ValueInfoProto) -> TensorType | None:
        if info.name not in self._shapes:
            return static_type(info.type)
        return TensorType(info.type.tensor_type.elem_type, tuple(self._shapes[info.name]))

    def _node(self, node_id: int, proto: onnx.NodeProto) -> Node:
        attrs = {attribute.name: _attr_value(attribute) for attribute in proto.attribute}
        opaque = (proto.domain, proto.op_type) in self._functions or any(
            isinstance(value, RawAttr) for value in attrs.values()
        )
        inputs = [self._value(name) if name else None for name in proto.input]
        outputs = [self._value(name) if name else self._value(f"\0{node_id}.{i}") for i, name in enumerate(proto.output)]
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        return Node(node_id, proto.op_type, inputs, outputs, attrs, domain, proto, opaque)


def _attr_value(attribute: AttributeProto) -> AttrValue:
    if attribute.type in _PLAIN and not attribute.ref_attr_name:
        value: Any = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        if not isinstance(value, (int, float)):
            return tuple(v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in value)
        return value
    external = attribute.t.data_location == onnx.TensorProto.EXTERNAL
    if attribute.type == AttributeProto.TENSOR and not attribute.ref_attr_name and not external:
        return from_tensor(onnx_ir.serde.deserialize_tensor(attribute.t))
    return RawAttr(attribute.SerializeToString(deterministic=True))


def captured_names(node: onnx.NodeProto) -> list[str]:
    """Names of outer values that the subgraphs of a node read, in order of first use."""
    found: dict[str, None] = {}
    for attribute in node.attribute:
        for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
            found.update(dict.fromkeys(_free_names(graph)))
    return list(found)


def _free_names(graph: onnx.GraphProto) -> list[str]:
    bound = {i.name for i in graph.input} | {t.name for t in graph.initializer}
    bound |= {t.values.name for t in graph.sparse_initializer}
    free: dict[str, None] = {}
    for node in graph.node:
        for name in (*node.input, *captured_names(node)):
            if name and name not in bound:
                free[name] = None
        bound.update(node.output)
    free.update(dict.fromkeys(o.name for o in graph.output if o.name not in bound))
    return list(free)


def static_type(proto: onnx.TypeProto) -> TensorType | None:
    """The type of a value, None where it is no tensor or has a symbolic dimension."""
    if not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if any(not d.HasField("dim_value") or d.dim_value < 0 for d in dims):
        return None
    return TensorType(proto.tensor_type.elem_type, tuple(d.dim_value for d in dims))


def infer_types(graph: Graph) -> None:
    """Fill the types that inference can tell, in place, while the graph is being built."""
    for node in graph.order():
        if node.opaque or all(graph.types.get(value) is not None for value in node.outputs):
            continue
        inputs = [None if v is None else (graph.types.get(v), graph.constants.get(v)) for v in node.inputs]
        try:
            found = infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), graph.opset, node.signature)
        except TypeInferenceError:
            continue
        for value, type in zip(node.outputs, found, strict=True):
            graph.types[value] = graph.types.get(value) or type
