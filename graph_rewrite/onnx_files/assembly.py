"""Small graphs made by hand: operator by operator, or from ONNX's text syntax."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnx.parser
from onnx import helper, numpy_helper

from graph_rewrite.ir.attributes import AttrValue, float32, operator_signature
from graph_rewrite.ir.constants import Constant, from_array
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_types import TypeInferenceError

Array = np.ndarray[Any, Any]
OPSET = 23
_STANDARD = {"", "ai.onnx"}


class Assembly:
    """Collect operators with their types, and make a `Graph` of them. Values are numbered in order."""

    def __init__(self, opset: int = OPSET) -> None:
        self.opset = opset
        self.types: dict[int, TensorType] = {}
        self.constants: dict[int, Constant] = {}
        self.nodes: list[Node] = []
        self.names: dict[int, str] = {}
        self._inputs: list[int] = []

    def input(self, name: str, type: TensorType) -> int:
        """Add an input to the graph."""
        value = self._value(name, type)
        self._inputs.append(value)
        return value

    def constant(self, name: str, array: Array) -> int:
        """Add an initializer."""
        constant = from_array(array)
        value = self._value(name, constant.type)
        self.constants[value] = constant
        return value

    def apply(
        self, op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[int | None], outputs: int = 1
    ) -> tuple[int, ...]:
        """Add an operator and return the values that it computes.

        Raises:
            TypeInferenceError: the operator refuses these inputs, or gives no static types.
        """
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        attrs = {name: float32(value) if isinstance(value, float) else value for name, value in attrs.items()}
        signature = operator_signature(op, domain, attrs)
        entries = [None if v is None else (self.types[v], self.constants.get(v)) for v in inputs]
        found = infer(op, domain, attrs, entries, outputs, self.opset, signature)
        known = [type for type in found if type is not None]
        if len(known) < outputs:
            raise TypeInferenceError(f"the result of {op} has no static type")
        number = len(self.nodes)
        values = tuple(self._value(f"{op.lower()}{number}_{i}", type) for i, type in enumerate(known))
        self.nodes.append(Node(number, op, inputs, values, attrs, domain, signature=signature))
        return values

    def type_of(self, op: str, domain: str, attrs: Mapping[str, AttrValue], inputs: Sequence[int | None]) -> TensorType:
        """Return the type of an operator's first output, without applying it.

        Raises:
            TypeInferenceError: the operator refuses these inputs, or gives no static type.
        """
        entries = [None if v is None else (self.types[v], self.constants.get(v)) for v in inputs]
        found = infer(op, domain, attrs, entries, 1, self.opset)[0]
        if found is None:
            raise TypeInferenceError(f"the result of {op} has no static type")
        return found

    def graph(self, outputs: Sequence[int]) -> Graph:
        """Return the graph with these outputs."""
        producer = {value: node.id for node in self.nodes for value in node.outputs}
        return Graph(
            {node.id: node for node in self.nodes}, dict(self.types), dict(self.constants), producer,
            consumers_of(self.nodes),
            {node.id: float(node.id) for node in self.nodes}, tuple(self._inputs), tuple(outputs), self.names,
            tuple(self.names[value] for value in outputs), {}, self._header(outputs), self.opset,
            max(len(self.types), len(self.nodes)),
        )  # fmt: skip

    def _value(self, name: str, type: TensorType) -> int:
        value = len(self.types)
        self.types[value], self.names[value] = type, name
        return value

    def _header(self, outputs: Sequence[int]) -> onnx.ModelProto:
        header = onnx.ModelProto(ir_version=11)
        header.graph.name = "instance"
        for domain in sorted({"", *(node.domain for node in self.nodes)}):
            header.opset_import.add(domain=domain, version=1 if domain else self.opset)
        for infos, values in ((header.graph.input, self._inputs), (header.graph.output, outputs)):
            for value in values:
                tensor = infos.add(name=self.names[value]).type.tensor_type
                tensor.elem_type = self.types[value].dtype
                tensor.shape.SetInParent()
                for dim in self.types[value].shape:
                    tensor.shape.dim.add(dim_value=dim)
        return header


def named_in(text: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of `values` whose names stand in a text of ONNX's syntax: constants for `model`."""
    words = set(re.findall(r"\w+", text))
    return {name: value for name, value in values.items() if name in words}


def model(text: str, opset: int = OPSET, **constants: Any) -> Graph:
    """Return a graph written in ONNX's text syntax; types of outputs may be left out, keyword arguments are its
    constants.

    model("(float[2,3] x) => (y) { t = MatMul(x, w)  y = com.microsoft.Gelu(t) }", w=np.ones((3, 4)))

    Lists of int become int64 tensors, other floating-point data float32. Constants may also be written in the text:
    `(float[2,3] x) => (y) <int64[2] s = {3, 2}> { y = Reshape(x, s) }`.

    Raises:
        ValueError: the type of an output cannot be inferred.
    """
    graph = onnx.parser.parse_graph("g " + text.strip())
    for name, data in constants.items():
        array = np.asarray(data)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(array, name))
    domains = sorted({node.domain for node in graph.node} - _STANDARD)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    proto = helper.make_model(graph, opset_imports=imports, ir_version=11)
    inferred = load(proto)
    for info, value in zip(proto.graph.output, inferred.outputs, strict=True):
        if not info.type.HasField("tensor_type") or not info.type.tensor_type.HasField("shape"):
            type = inferred.types[value]
            if type is None:
                raise ValueError(f"the type of output {info.name} can't be inferred: declare it")
            info.type.CopyFrom(helper.make_tensor_type_proto(type.dtype, type.shape))
    return load(proto)
