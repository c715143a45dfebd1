"""Branches of If whose condition is known before run time: they are put in place of the node."""

from __future__ import annotations

import onnx
import onnx_ir

from graph_rewrite.ir.constants import from_tensor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.inlining.bodies import BodyScope, BodyStep, BodyWriter, is_complete, is_modelled
from graph_rewrite.onnx_files.loading import attribute_value, standard_domain


def branches_taken(graph: Graph) -> tuple[Graph, int]:
    """Return the graph with the branch that is taken in place of each If whose condition is a constant, and the number
    of them.

    An If stays where its branch holds subgraphs, calls of functions, or attributes that the graph does not model. In a
    model with symbolic dimensions all stay: a condition that is known at the shape of the search may be another at
    others.
    """
    chosen = [] if _is_symbolic(graph) else [(node, body) for node in graph.order() if (body := _branch(graph, node))]
    if not chosen:
        return graph, 0
    writer = BodyWriter(graph)
    for node, body in chosen:
        writer.put(node, _steps(writer, node, body))
    return writer.finish(), len(chosen)


def _is_symbolic(graph: Graph) -> bool:
    tensors = [info.type.tensor_type for info in graph.header.graph.input if info.type.HasField("tensor_type")]
    return any(not dim.HasField("dim_value") for tensor in tensors for dim in tensor.shape.dim)


def _branch(graph: Graph, node: Node) -> onnx.GraphProto | None:
    """Return the branch that an If takes, where that is known and can be written out."""
    if node.op != "If" or node.domain or node.proto is None or not node.inputs or node.inputs[0] is None:
        return None
    condition = graph.constants.get(node.inputs[0])
    if condition is None or condition.type.size != 1:
        return None
    wanted = "then_branch" if bool(condition.numpy().reshape(-1)[0]) else "else_branch"
    body = next((attribute.g for attribute in node.proto.attribute if attribute.name == wanted), None)
    return body if body is not None and _can_be_written(graph, node, body) else None


def _can_be_written(graph: Graph, node: Node, body: onnx.GraphProto) -> bool:
    functions = {(standard_domain(function.domain), function.name) for function in graph.header.functions}
    known = [*node.captures, *(tensor.name for tensor in body.initializer)]
    return (
        not body.sparse_initializer
        and not body.input
        and len(body.output) == len(node.outputs)
        and len(set(known)) == len(known)
        and all((standard_domain(inner.domain), inner.op_type) not in functions for inner in body.node)
        and all(is_modelled(attribute) for inner in body.node for attribute in inner.attribute)
        and is_complete(body.node, known, [info.name for info in body.output])
    )


def _steps(writer: BodyWriter, node: Node, body: onnx.GraphProto) -> list[BodyStep]:
    """Return the operators of a branch, between the values that it captures and the results of its If."""
    name = writer.name_of(node)
    outer = node.inputs[len(node.inputs) - len(node.captures) :]
    known: dict[str, int | None] = dict(zip(node.captures, outer, strict=True))
    for tensor in body.initializer:
        constant = from_tensor(onnx_ir.serde.deserialize_tensor(tensor))
        known[tensor.name] = writer.value(f"{name}/{tensor.name}", constant)
    results = zip((info.name for info in body.output), node.outputs, strict=True)
    scope, steps = BodyScope(writer, name, known, results), list[BodyStep]()
    for inner in body.node:
        domain, attrs = standard_domain(inner.domain), {one.name: attribute_value(one) for one in inner.attribute}
        read, made = scope.operands(inner), scope.results(inner)
        steps.append(BodyStep(inner.op_type, domain, attrs, read, made, scope.label(inner)))
    return steps + scope.copies()
