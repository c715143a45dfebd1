"""Reading ONNX models into graphs without loss: what the graph does not model is kept bit by bit, for `saving` to write
back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir
from onnx import AttributeProto

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.attributes import AttrValue, RawAttr
from graph_rewrite.ir.constants import Constant, from_tensor
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.ordering import topological_ranks
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.body_digests import opaque_signature
from graph_rewrite.onnx_files.external_data import (
    MappedFiles,
    ModelLoadError,
    check_tensors,
    is_absurd,
    is_external,
    read_tensor,
)
from graph_rewrite.onnx_files.model_file import read_model
from graph_rewrite.onnx_files.subgraphs import captured_names
from graph_rewrite.onnx_files.validation import check_model, check_shapes, open_negative_sizes
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.known import is_known
from graph_rewrite.operators.standard_types import TypeInferenceError
from graph_rewrite.system.deadline import check_time
from graph_rewrite.system.garbage_collector import no_garbage_collection

__all__ = ["ModelLoadError", "graph_of", "infer_types", "load", "static_type"]

DEFAULT_OPSET = 23
"""Assumed where a model imports no standard operators; any is right, since it uses none."""

PLAIN = (
    AttributeProto.INT, AttributeProto.FLOAT, AttributeProto.STRING,
    AttributeProto.INTS, AttributeProto.FLOATS, AttributeProto.STRINGS,
)  # fmt: skip
"""Types of attributes whose values a graph holds as such."""


def load(
    source: str | os.PathLike[str] | onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> Graph:
    """Read an ONNX model. Weights beside the file stay there and are memory-mapped; nothing reads them before they are
    needed. The file must not be changed in place while the graph is in use.

    `shapes` fixes the shapes of inputs by name, for models with symbolic dimensions. External data of a ModelProto is
    looked for in the working directory.

    Raises:
        ModelLoadError: no such file, not an ONNX model, truncated, or external data missing or out of reach.
        OutOfTime: the time limit of the run is reached.
    """
    if isinstance(source, onnx.ModelProto):
        model, folder, label = onnx.ModelProto(), Path(), "the model"
        model.CopyFrom(source)
    else:
        model, folder, label = read_model(Path(source)), Path(os.path.abspath(source)).parent, os.fspath(source)
    # Many objects that stay: looking for cycles among them takes longer than making them.
    with no_garbage_collection():
        check_model(model, label)
        open_negative_sizes(model)
        check_tensors(model, folder, label)
        return _Loader(model, folder, shapes or {}, label).graph()


def graph_of(model: onnx.ModelProto, label: str) -> Graph:
    """Return the graph of a model without checking the file; `model` becomes its header. A value that is defined
    twice or never raises a ModelLoadError."""
    return _Loader(model, Path(), {}, label).graph()


class _Loader:
    def __init__(self, model: onnx.ModelProto, folder: Path, shapes: Mapping[str, tuple[int, ...]], label: str) -> None:
        self._model, self._folder, self._shapes, self._label = model, folder, dict(shapes), label
        self._functions = {(standard_domain(f.domain), f.name) for f in model.functions}
        self._bodies = digest(*sorted(repr(f.SerializeToString(deterministic=True)) for f in model.functions))
        self._ids: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._types: dict[int, TensorType | None] = {}
        self._constants: dict[int, Constant] = {}
        self._stored: dict[int, Constant] = {}
        default = DEFAULT_OPSET if model.opset_import else 1
        self._opset = next((o.version for o in model.opset_import if standard_domain(o.domain) == ""), default)

    def graph(self) -> Graph:
        proto = self._model.graph
        declared = {info.name for info in proto.input}
        check_shapes(self._shapes, {info.name: info for info in proto.input}, self._label)
        inputs = tuple(self._value(info.name, self._input_type(info)) for info in proto.input)
        self._initializers(declared)
        nodes = {i: self._node(i, node) for i, node in enumerate(proto.node)}
        outputs = tuple(self._value(info.name) for info in proto.output)
        producer: dict[int, int] = {}
        for node in nodes.values():
            for value in node.outputs:
                if value in producer or value in self._constants or value in inputs:
                    raise ModelLoadError(f"{self._label}: value {self._names[value]!r} is defined twice")
                producer[value] = node.id
        graph = Graph(
            nodes, self._types, self._constants, producer, consumers_of(nodes.values()), {}, inputs,
            outputs, self._names, tuple(info.name for info in proto.output), self._stored, self._header(),
            self._opset, max(len(nodes), len(self._ids)),
        )  # fmt: skip
        self._check_defined(graph)
        try:
            graph.ranks = topological_ranks(graph)
        except InvalidRewriteError as error:
            raise self._invalid(error) from error
        infer_types(graph, {} if self._shapes else self._declared_types(), self._label)
        return graph

    def _invalid(self, error: Exception) -> ModelLoadError:
        return ModelLoadError(f"{self._label}: not a valid ONNX model: {error}; onnx.checker.check_model may tell more")

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn the errors of onnx and onnx-ir over damaged tensors and attributes into ModelLoadErrors."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise self._invalid(error) from error

    def _initializers(self, inputs: set[str]) -> None:
        """Collect the constants. Those that a caller may override, and sparse ones, are only remembered: the header
        keeps them."""
        files = MappedFiles()
        for tensor in self._model.graph.initializer:
            with self._reading():
                read = files.tensor if is_external(tensor) else read_tensor
                constant = from_tensor(read(tensor, self._folder))
            value = self._value(tensor.name, constant.type)
            if tensor.name in inputs:
                self._stored[value] = constant
                self._types[value] = self._types[value] or constant.type
            elif value in self._constants:
                raise ModelLoadError(f"{self._label}: there are two initializers called {tensor.name!r}")
            else:
                self._constants[value] = constant
        for sparse in self._model.graph.sparse_initializer:
            with self._reading():
                constant = _sparse_constant(sparse)
            self._stored[self._value(sparse.values.name, constant.type)] = constant

    def _header(self) -> onnx.ModelProto:
        """Return the model without nodes and initializers. Tensors keep their own message alive, so nothing is
        copied."""
        header = self._model
        del header.graph.node[:], header.graph.initializer[:]
        if self._shapes:
            # Declared for other input shapes; they hold no longer.
            del header.graph.value_info[:]
        return header

    def _check_defined(self, graph: Graph) -> None:
        known = {*graph.inputs, *graph.constants, *graph.stored, *graph.producer}
        read = {value for node in graph.nodes.values() for value in node.inputs if value is not None}
        missing = sorted(self._names[value] for value in (read | set(graph.outputs)) - known)
        if missing:
            raise ModelLoadError(f"{self._label}: nothing defines the value {missing[0]!r}; is the model complete?")

    def _declared_types(self) -> dict[int, TensorType | None]:
        infos = (*self._model.graph.value_info, *self._model.graph.output)
        return {self._ids[info.name]: static_type(info.type) for info in infos if info.name in self._ids}

    def _value(self, name: str, type: TensorType | None = None) -> int:
        value = self._ids.get(name)
        if value is None:
            value = self._ids[name] = len(self._ids)
            self._names[value] = name
            self._types[value] = type
        return value

    def _input_type(self, info: onnx.ValueInfoProto) -> TensorType | None:
        if info.name not in self._shapes:
            return static_type(info.type)
        return TensorType(info.type.tensor_type.elem_type, tuple(self._shapes[info.name]))

    def _node(self, node_id: int, proto: onnx.NodeProto) -> Node:
        check_time()
        with self._reading():
            attrs = {attribute.name: attribute_value(attribute) for attribute in proto.attribute}
        domain = standard_domain(proto.domain)
        is_call = (domain, proto.op_type) in self._functions
        opaque = is_call or any(isinstance(value, RawAttr) for value in attrs.values())
        captures = captured_names(proto) if opaque else ()
        inputs = [self._value(name) if name else None for name in proto.input]
        inputs.extend(self._value(name) for name in captures)
        outputs = [self._value(name or f"\0{node_id}.{i}") for i, name in enumerate(proto.output)]
        signature = opaque_signature(proto, captures, self._bodies if is_call else "") if opaque else None
        return Node(node_id, proto.op_type, inputs, outputs, attrs, domain, proto, opaque, signature, captures)


def standard_domain(domain: str) -> str:
    """Return a domain's name; that of ONNX itself is empty."""
    return "" if domain == "ai.onnx" else domain


def _sparse_constant(sparse: onnx.SparseTensorProto) -> Constant:
    type = TensorType(sparse.values.data_type, tuple(sparse.dims))
    kept = onnx.SparseTensorProto()
    kept.CopyFrom(sparse)
    kept.values.ClearField("name")

    def dense() -> onnx_ir.TensorProtocol:
        values, places = (onnx.numpy_helper.to_array(tensor) for tensor in (kept.values, kept.indices))
        result = np.zeros(type.size, values.dtype)
        result[places if places.ndim == 1 else np.ravel_multi_index(tuple(places.T), type.shape)] = values
        return onnx_ir.tensor(result.reshape(type.shape))

    tensor = onnx_ir.LazyTensor(dense, onnx_ir.DataType(type.dtype), onnx_ir.Shape(type.shape))
    return Constant(type, digest("sparse", repr(kept.SerializeToString(deterministic=True))), tensor=tensor)


def attribute_value(attribute: AttributeProto) -> AttrValue:
    """Return what a Node holds for an attribute: plain values and tensors as such, everything else bit by bit."""
    if attribute.type in PLAIN and not attribute.ref_attr_name:
        value: Any = onnx.helper.get_attribute_value(attribute)
        if isinstance(value, bytes):
            return value.decode("utf-8", "surrogateescape")
        if not isinstance(value, (int, float)):
            return tuple(v.decode("utf-8", "surrogateescape") if isinstance(v, bytes) else v for v in value)
        return value
    if attribute.type == AttributeProto.TENSOR and not attribute.ref_attr_name:
        if not attribute.HasField("t"):
            raise ValueError(f"the attribute {attribute.name!r} holds no tensor")
        return from_tensor(onnx_ir.serde.deserialize_tensor(attribute.t))
    return RawAttr(attribute.SerializeToString(deterministic=True))


def static_type(proto: onnx.TypeProto) -> TensorType | None:
    """Return the type of a value; None where it is no tensor or has a symbolic dimension."""
    if not proto.HasField("tensor_type") or not proto.tensor_type.HasField("shape"):
        return None
    dims = proto.tensor_type.shape.dim
    if not proto.tensor_type.elem_type or any(not d.HasField("dim_value") or d.dim_value < 0 for d in dims):
        return None
    return TensorType(proto.tensor_type.elem_type, tuple(d.dim_value for d in dims))


def infer_types(graph: Graph, declared: Mapping[int, TensorType | None], label: str = "the model") -> None:
    """Fill in the types that inference can tell, in place, while the graph is being built. Results of which it knows
    nothing, such as those of opaque nodes, have their `declared` types. Results of operators that refuse their operands
    have no type, so that no rule touches them: that they make no sense is for ONNX Runtime to report.

    Raises:
        ModelLoadError: a result is too large for any machine.
    """
    for node in graph.order():
        check_time()
        inputs = [None if v is None else (graph.types.get(v), graph.constants.get(v)) for v in node.inputs]
        found: tuple[TensorType | None, ...] = (None,) * len(node.outputs)
        told = declared
        if not node.opaque:
            try:
                found = infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), graph.opset, node.signature)
            except TypeInferenceError:
                told = {} if is_known(node) and onnx.defs.has(node.op, graph.opset) else declared
        for value, type in zip(node.outputs, found, strict=True):
            if type is not None and is_absurd(type.shape):
                raise ModelLoadError(f"{label}: the result {type} of {node.op} is too large for any machine")
            graph.types[value] = type or told.get(value)
