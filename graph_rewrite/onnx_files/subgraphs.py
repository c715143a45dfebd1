"""Subgraphs in attributes (If, Loop, Scan): their nodes, and the names that they define or read from outside."""

from __future__ import annotations

from collections.abc import Iterator

import onnx


def attribute_graphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def captured_names(node: onnx.NodeProto) -> tuple[str, ...]:
    """Return the names of outer values that the subgraphs of a node read, in order of first use."""
    found: dict[str, None] = {}
    for graph in attribute_graphs(node):
        found.update(dict.fromkeys(_free_names(graph)))
    return tuple(found)


def _free_names(graph: onnx.GraphProto) -> list[str]:
    bound = _stored_names(graph)
    free: dict[str, None] = {}
    for node in graph.node:
        for name in (*node.input, *captured_names(node)):
            if name and name not in bound:
                free[name] = None
        bound.update(node.output)
    free.update(dict.fromkeys(o.name for o in graph.output if o.name not in bound))
    return list(free)


def _stored_names(graph: onnx.GraphProto) -> set[str]:
    sparse = {t.values.name for t in graph.sparse_initializer}
    return {i.name for i in graph.input} | {t.name for t in graph.initializer} | sparse


def inner_names(node: onnx.NodeProto) -> Iterator[str]:
    """Yield the names of values defined inside the subgraphs of a node; outer values must not bear them."""
    for graph in attribute_graphs(node):
        yield from _stored_names(graph)
        for inner in graph.node:
            yield from inner.output
            yield from inner_names(inner)


def inner_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield all nodes of a graph and of the graphs in their attributes."""
    for node in graph.node:
        yield node
        for inner in attribute_graphs(node):
            yield from inner_nodes(inner)
