"""Digests of opaque nodes and their subgraphs by structure: independent of the names of values and nodes, and of the
order of nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import onnx

from graph_rewrite.ir.hashing import application_hash, digest
from graph_rewrite.onnx_files.subgraphs import attribute_graphs


def node_digest(node: onnx.NodeProto, known: Mapping[str, str], *about: str) -> str | None:
    """Return the digest of an operator with its attributes, subgraphs among them, without its inputs and outputs.

    Args:
        known: digests of the outer values that the subgraphs may read, by name.
        about: further texts that the digest depends on.

    Returns:
        None where a subgraph reads a value before it is defined.
    """
    parts = [node.domain, node.op_type, node.overload, *about]
    for attribute in sorted(node.attribute, key=lambda one: one.name):
        graphs = [attribute.g] if attribute.HasField("g") else list(attribute.graphs)
        tokens = [_graph_digest(graph, known) for graph in graphs]
        if None in tokens:
            return None
        parts += [attribute.name, *(token or "" for token in tokens)]
        if not graphs:
            parts.append(_plain(attribute))
    return digest(*parts)


def _graph_digest(graph: onnx.GraphProto, outer: Mapping[str, str]) -> str | None:
    """Return the digest of a subgraph; None where it reads a value before it is defined."""
    known = {"": "-", **outer}
    known |= {tensor.name: _tensor(tensor) for tensor in graph.initializer}
    known |= {sparse.values.name: _sparse(sparse) for sparse in graph.sparse_initializer}
    known |= {info.name: f"in{i}:{known.get(info.name, '')}" for i, info in enumerate(graph.input)}
    nodes = list[str]()
    for node in graph.node:
        operator = node_digest(node, known) if all(name in known for name in node.input) else None
        if operator is None:
            return None
        # An output that is left out is another operator than one that nothing reads.
        given = "".join("1" if name else "0" for name in node.output)
        applied = application_hash(f"{operator}:{given}", len(node.output), (known[name] for name in node.input))
        nodes.append(applied)
        known |= {name: f"{applied}:{i}" for i, name in enumerate(node.output) if name}
    if any(info.name not in known for info in graph.output):
        return None
    types = [_type(info) for info in (*graph.input, *graph.output)]
    return digest(*types, "outputs", *(known[info.name] for info in graph.output), "nodes", *sorted(nodes))


def _plain(attribute: onnx.AttributeProto) -> str:
    copy = onnx.AttributeProto()
    copy.CopyFrom(attribute)
    copy.ClearField("doc_string")
    if copy.HasField("t"):
        copy.t.ClearField("name")
    return _short(copy.SerializeToString(deterministic=True))


def _tensor(tensor: onnx.TensorProto) -> str:
    copy = onnx.TensorProto()
    copy.CopyFrom(tensor)
    copy.ClearField("name")
    copy.ClearField("doc_string")
    return _short(copy.SerializeToString(deterministic=True))


def _sparse(sparse: onnx.SparseTensorProto) -> str:
    copy = onnx.SparseTensorProto()
    copy.CopyFrom(sparse)
    copy.values.ClearField("name")
    return "sparse" + _short(copy.SerializeToString(deterministic=True))


def _type(info: onnx.ValueInfoProto) -> str:
    return _short(info.type.SerializeToString(deterministic=True))


def _short(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def opaque_signature(node: onnx.NodeProto, captures: tuple[str, ...], functions: str) -> str:
    """Return the digest of an opaque node without its inputs and outputs, independent of the names of captured values.

    Args:
        captures: names of the outer values that the node's subgraphs read.
        functions: identifies the bodies of the model's functions, for a call of one.
    """
    if next(attribute_graphs(node), None) is not None:
        found = node_digest(node, {name: f"outer{i}" for i, name in enumerate(captures)}, functions)
        if found is not None:
            return found
    identity = "\x1f".join((node.domain, node.op_type, node.overload, functions))
    state = hashlib.blake2b(identity.encode(), digest_size=16)
    for attribute in sorted(node.attribute, key=lambda one: one.name):
        state.update(attribute.SerializeToString(deterministic=True))
    return state.hexdigest()
