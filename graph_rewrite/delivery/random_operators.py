"""Operators that draw random numbers: a model with one gives other outputs from run to run."""

from __future__ import annotations

from collections.abc import Iterable

import onnx

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.subgraphs import attribute_graphs, inner_nodes

_RANDOM = frozenset({
    "Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike",
})  # fmt: skip


def random_operators(graph: Graph) -> tuple[str, ...]:
    """Return the types of the operators that draw random numbers, those in subgraphs and functions included; Dropout
    counts where it may be in training mode."""
    found = {node.op for node in graph.nodes.values() if node.op in _RANDOM or _is_training(graph, node)}
    protos = [node.proto for node in graph.nodes.values() if node.proto is not None]
    inner = [body for proto in protos for body in attribute_graphs(proto)]
    found.update(_random_in(node for body in inner for node in inner_nodes(body)))
    found.update(_random_in(node for function in graph.header.functions for node in function.node))
    return tuple(sorted(found))


def _random_in(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    return {node.op_type for node in nodes if node.op_type in _RANDOM or _has_training_input(node)}


def _has_training_input(node: onnx.NodeProto) -> bool:
    return node.op_type == "Dropout" and len(node.input) > 2 and bool(node.input[2])


def _is_training(graph: Graph, node: Node) -> bool:
    if node.op != "Dropout" or len(node.inputs) < 3 or node.inputs[2] is None:
        return False
    mode = graph.constants.get(node.inputs[2])
    return mode is None or bool(mode.numpy().any())
