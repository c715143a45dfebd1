"""Serialised models that a worker can run, and models that fail in every way that one can."""

import onnx
from onnx import TensorProto, helper

from graph_rewrite.latency.models import noise_model


def convolutions(layers: int) -> bytes:
    return noise_model(channels=16, image=16, layers=layers).SerializeToString()


def huge_intermediate() -> bytes:
    """A model with the inputs of `convolutions` that wants 40 GB for a tensor in between, at run time only."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 16, 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [100_000, 100_000])
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Expand", ["s", "shape"], ["e"]),
        helper.make_node("Relu", ["e"], ["r"]),
        helper.make_node("ReduceMax", ["r"], ["y"], keepdims=0),
    ]
    graph = helper.make_graph(nodes, "huge", [x], [y], [shape])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def foreign_input() -> bytes:
    """A valid model whose input the baseline does not have."""
    types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("z", "y")]
    graph = helper.make_graph([helper.make_node("Relu", ["z"], ["y"])], "foreign", types[:1], types[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()


def unknown_operator() -> bytes:
    """A model that ONNX Runtime refuses to open."""
    model = onnx.ModelProto.FromString(convolutions(1))
    model.graph.node[1].op_type = "NoSuchOperator"
    return model.SerializeToString()


def contents() -> dict[str, bytes]:
    """One model of each kind, by name: `good`, and those that must fail."""
    return {
        "huge": huge_intermediate(),
        "foreign": foreign_input(),
        "unknown": unknown_operator(),
        "truncated": convolutions(2)[:-200],
        "empty": b"",
        "good": convolutions(1),
    }
