"""Subgraphs in attributes (If, Loop, Scan) and function bodies: the outer values that they read, and their
digests."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

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


def opaque_signature(node: onnx.NodeProto, captures: tuple[str, ...], functions: str) -> str:
    """Return the digest of an opaque node without its inputs and outputs, independent of the names of captured values.

    `functions` identifies the bodies of the model's functions.
    """
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    for field in ("input", "output", "name", "doc_string", "metadata_props"):
        copy.ClearField(field)
    attributes = sorted(copy.attribute, key=lambda attribute: attribute.name)
    places = {name: f"\0{i}" for i, name in enumerate(captures)}
    if places:
        for graph in attribute_graphs(copy):
            _rename(graph, places)
    identity = "\x1f".join((node.domain, node.op_type, node.overload, functions))
    state = hashlib.blake2b(identity.encode(), digest_size=16)
    for attribute in attributes:
        state.update(attribute.SerializeToString(deterministic=True))
    return state.hexdigest()


def _rename(graph: onnx.GraphProto, places: Mapping[str, str]) -> None:
    for node in inner_nodes(graph):
        for i, name in enumerate(node.input):
            node.input[i] = places.get(name, name)
        for inner in attribute_graphs(node):
            _rename_outputs(inner, places)
    _rename_outputs(graph, places)


def _rename_outputs(graph: onnx.GraphProto, places: Mapping[str, str]) -> None:
    for output in graph.output:
        output.name = places.get(output.name, output.name)
