"""Small models, built from nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def tensor(name: str, *shape: int | str | None, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def weight(name: str, *shape: int, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return numpy_helper.from_array(values, name)


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    initializers: Sequence[onnx.TensorProto] = (),
    opsets: Mapping[str, int] | None = None,
    functions: Sequence[onnx.FunctionProto] = (),
) -> onnx.ModelProto:
    imports = [helper.make_opsetid(domain, version) for domain, version in {"": 20, **(opsets or {})}.items()]
    graph = helper.make_graph(nodes, "model", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=imports, functions=functions, ir_version=10)


def layers(count: int, width: int = 8, rows: int = 4) -> onnx.ModelProto:
    """`count` times MatMul, Add and Relu with weights of their own, between a Neg and an Exp."""
    nodes, initializers = [helper.make_node("Neg", ["x"], ["h0"], "first")], []
    for i in range(count):
        initializers += [weight(f"w{i}", width, width, seed=i), weight(f"b{i}", width, seed=i)]
        nodes += [
            helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"m{i}"], f"/layer{i}/matmul"),
            helper.make_node("Add", [f"m{i}", f"b{i}"], [f"a{i}"], f"/layer{i}/add"),
            helper.make_node("Relu", [f"a{i}"], [f"h{i + 1}"], f"/layer{i}/relu"),
        ]
    nodes.append(helper.make_node("Exp", [f"h{count}"], ["y"], "last"))
    return model_of(nodes, [tensor("x", rows, width)], [tensor("y", rows, width)], initializers)
