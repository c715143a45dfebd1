"""Small ONNX models that the meters make themselves.

Weights are written as ConstantOfShape, which ONNX Runtime folds into a constant when it opens the model and then
packs like any other weight; so the files stay small, whatever the weights' size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
from onnx import TensorProto, helper, numpy_helper

from graph_rewrite.latency.operator_spec import OperatorSpec

_OPSET = 17
_IR_VERSION = 10
_FILLABLE = {
    TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.INT8, TensorProto.INT16,
    TensorProto.INT32, TensorProto.INT64, TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
}  # fmt: skip
_FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16}


class _Model:
    """Nodes and tensors on their way to a ModelProto."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: list[onnx.TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def add_input(self, name: str, dtype: int, shape: Sequence[int]) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, dtype, shape))
        return name

    def add_weight(self, name: str, dtype: int, shape: Sequence[int]) -> str:
        if dtype not in _FILLABLE:
            raise ValueError(f"cannot make a weight of type {TensorProto.DataType.Name(dtype)}")
        # Not zero, so that no kernel finds a shortcut; small, so that no long sum overflows.
        value = helper.make_tensor("", dtype, [1], [0.01 if dtype in _FLOATS else 1])
        self.tensors.append(helper.make_tensor(f"{name}.shape", TensorProto.INT64, [len(shape)], shape))
        self.add_node("ConstantOfShape", [f"{name}.shape"], [name], value=value)
        return name

    def add_node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> str:
        self.nodes.append(helper.make_node(op, inputs, outputs, **attrs))
        return outputs[0]

    def finish(self, outputs: Sequence[tuple[str, int]], opsets: dict[str, int]) -> onnx.ModelProto:
        results = [helper.make_tensor_value_info(name, dtype, None) for name, dtype in outputs]
        graph = helper.make_graph(self.nodes, "model", self.inputs, results, self.tensors)
        imports = [helper.make_opsetid(domain, version) for domain, version in opsets.items()]
        return helper.make_model(graph, opset_imports=imports, ir_version=_IR_VERSION)


def matmul_model(size: int, *, constant: bool) -> onnx.ModelProto:
    """Make the product `y` of two fp32 matrices `a` and `b` of size x size; with `constant`, `b` is a weight."""
    model = _Model()
    left = model.add_input("a", TensorProto.FLOAT, [size, size])
    right = (model.add_weight if constant else model.add_input)("b", TensorProto.FLOAT, [size, size])
    model.add_node("MatMul", [left, right], ["y"])
    return model.finish([("y", TensorProto.FLOAT)], {"": _OPSET})


def streaming_model(elements: int, adds: int) -> onnx.ModelProto:
    """Make a chain of sums of two fp32 vectors: each reads 8 bytes per element, and writes 4."""
    model = _Model()
    first = model.add_input("a", TensorProto.FLOAT, [elements])
    last = model.add_input("b", TensorProto.FLOAT, [elements])
    for number in range(adds):
        last = model.add_node("Add", [first, last], [f"s{number}"])
    return model.finish([(last, TensorProto.FLOAT)], {"": _OPSET})


def noise_model(channels: int = 64, image: int = 28, layers: int = 4) -> onnx.ModelProto:
    """Make convolutions and a matrix product, some milliseconds on one thread, to measure a machine's noise with."""
    model = _Model()
    last = model.add_input("x", TensorProto.FLOAT, [1, channels, image, image])
    for layer in range(layers):
        weight = model.add_weight(f"w{layer}", TensorProto.FLOAT, [channels, channels, 3, 3])
        convolved = model.add_node("Conv", [last, weight], [f"c{layer}"], pads=[1, 1, 1, 1])
        last = model.add_node("Relu", [convolved], [f"r{layer}"])
    flat = model.add_node("Flatten", [last], ["f"])
    weight = model.add_weight("w", TensorProto.FLOAT, [channels * image * image, 64])
    model.add_node("MatMul", [flat, weight], ["y"])
    return model.finish([("y", TensorProto.FLOAT)], {"": _OPSET})


def operator_model(spec: OperatorSpec) -> onnx.ModelProto:
    """Make a model of one operator; its inputs are named `i0`, `i1`, ... Raises ValueError for types we cannot make."""
    model = _Model()
    names = []
    for index, kind in enumerate(spec.input_types):
        name = f"i{index}"
        if kind is None:
            name = ""
        elif index not in spec.constant_inputs:
            model.add_input(name, *kind)
        elif (array := spec.constant_inputs[index]) is not None:
            model.tensors.append(numpy_helper.from_array(array, name))
        else:
            model.add_weight(name, *kind)
        names.append(name)
    outputs = [f"o{index}" if kind is not None else "" for index, kind in enumerate(spec.output_types)]
    node = helper.make_node(spec.op, names, outputs, domain=spec.domain)
    node.attribute.extend(_attribute(name, value) for name, value in sorted(spec.attrs.items()))
    model.nodes.append(node)
    results = [(f"o{index}", kind[0]) for index, kind in enumerate(spec.output_types) if kind is not None]
    standard = {} if spec.domain == "" else {"": _OPSET}
    return model.finish(results, {**standard, spec.domain: spec.opset})


def _attribute(name: str, value: Any) -> onnx.AttributeProto:
    if isinstance(value, onnx.AttributeProto):
        return value
    return helper.make_attribute(name, numpy_helper.from_array(value) if hasattr(value, "dtype") else value)
