"""Structural digests of graphs: what two files of one architecture have in common, whatever their weights.

A fingerprint covers operators, attributes, types and shapes, connections, and integer constants that decide structure
(axes, target shapes, indices). Weights count by their types alone. Names, the order of nodes, and whether two equal
constants are stored once or twice change nothing. A digest `of any size` leaves the sizes of dimensions out as well, so
that it is the same for one architecture at several input shapes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping

import onnx

from graph_rewrite.ir.attributes import RawAttr
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType

VERSION = 1
"""Number of the way in which fingerprints are computed; part of each."""
STRUCTURAL_SIZE = 64
"""Most elements of an integer constant that counts by its content: more are a table or a mask."""

_OF_ITS_SIZE, _OF_ANY_SIZE = MemoKey[str]("fingerprint"), MemoKey[str]("fingerprint of any size")
_INTEGERS = frozenset({onnx.TensorProto.INT64, onnx.TensorProto.INT32, onnx.TensorProto.BOOL})
_QUANTISED = frozenset({"QLinearConv", "DequantizeLinear", "QuantizeLinear", "QGemm", "ConvInteger", "MatMulInteger"})


def fingerprint(graph: Graph, *, any_size: bool = False) -> str:
    """Return the structural fingerprint of a graph; with `any_size` without the sizes of dimensions. Refused optimisers
    are no part of it."""
    key = _OF_ANY_SIZE if any_size else _OF_ITS_SIZE
    known = graph.memo.get(key)
    return known or graph.memo.put(key, graph_digest(graph, upstream(graph, any_size=any_size), any_size=any_size))


def graph_digest(graph: Graph, above: Mapping[int, str], *, any_size: bool = False) -> str:
    """Return the fingerprint of a graph whose `upstream` digests are known."""
    domains = sorted({node.domain for node in graph.nodes.values()} - {""})
    return digest(
        VERSION, graph.opset, *domains,
        *(type_token(graph.types[value], any_size) for value in graph.inputs),
        "outputs", *(above[value] for value in graph.outputs),
        "nodes", *sorted(above[node.outputs[0]] for node in graph.nodes.values() if node.outputs),
    )  # fmt: skip


def upstream(graph: Graph, *, any_size: bool = False) -> dict[int, str]:
    """Return a digest per value of the structure that it is computed by."""
    found: dict[int, str] = {}
    for i, value in enumerate(graph.inputs):
        found[value] = f"in{i}:{type_token(graph.types[value], any_size)}"
    for node in graph.order():
        parts = [node_token(node), str(len(node.outputs))]
        for read in node.inputs:
            parts.append("-" if read is None else found.get(read) or _given(graph, node, read, any_size))
        key = _short(parts)
        found.update((value, f"{key}:{i}") for i, value in enumerate(node.outputs))
    for value in graph.outputs:
        if value not in found:
            found[value] = _given(graph, None, value, any_size)
    return found


def downstream(graph: Graph) -> dict[int, str]:
    """Return a digest per value of the structure that it is used by, of any size."""
    found: dict[int, str] = {}
    readers: dict[int, list[str]] = {}
    for i, value in enumerate(graph.outputs):
        readers.setdefault(value, []).append(f"out{i}")
    for node in reversed(graph.order()):
        for value in node.outputs:
            found[value] = _short(sorted(readers.get(value, ())))
        key = _short([node_token(node), *(found[value] for value in node.outputs)])
        for i, read in enumerate(node.inputs):
            if read is not None:
                readers.setdefault(read, []).append(f"{key}:{i}")
    return found


def type_token(type: TensorType | None, any_size: bool) -> str:
    """Return a type as a text; with `any_size` as element type and rank."""
    if type is None:
        return "?"
    return f"{type.dtype}^{type.rank}" if any_size else str(type)


def constant_token(type: TensorType | None, constant: Constant | None, reader: Node | None, any_size: bool) -> str:
    """Return what counts of a constant: its type, and the content of integers that decide structure."""
    token = f"const {type_token(type, any_size)}"
    if constant is None or any_size or not decides_structure(constant, reader):
        return token
    return f"{token} {constant.numpy().reshape(-1).tolist()}"


def decides_structure(constant: Constant, reader: Node | None) -> bool:
    """Return True for integers that a reader takes as axes, shapes or indices: their content is no weight."""
    if constant.type.size > STRUCTURAL_SIZE or constant.type.dtype not in _INTEGERS:
        return False
    bias = constant.type.dtype == onnx.TensorProto.INT32 and reader is not None and reader.op in _QUANTISED
    return not bias


def node_token(node: Node) -> str:
    """Return a digest of an operator with its attributes, in which tensors count by their types."""
    if not any(isinstance(value, (Constant, RawAttr)) for value in node.attrs.values()):
        return node.signature
    parts = [node.op, node.domain]
    for name, value in sorted(node.attrs.items()):
        if isinstance(value, Constant):
            parts.append(f"{name}={constant_token(value.type, value, None, False)}")
        elif isinstance(value, RawAttr):
            parts.append(f"{name}={_without_weights(value.proto())}")
        else:
            parts.append(f"{name}={value!r}")
    return digest(*parts)


def _given(graph: Graph, reader: Node | None, value: int, any_size: bool) -> str:
    """Return the token of a value that no node computes."""
    constant = graph.constants.get(value) or graph.stored.get(value)
    return constant_token(graph.types.get(value), constant, reader, any_size)


def _without_weights(attribute: onnx.AttributeProto) -> str:
    """Return a digest of an attribute that holds subgraphs, without the elements of their tensors and the names of
    nodes."""
    kept = onnx.AttributeProto()
    kept.CopyFrom(attribute)
    _strip(kept)
    return hashlib.blake2b(kept.SerializeToString(deterministic=True), digest_size=16).hexdigest()


def _strip(attribute: onnx.AttributeProto) -> None:
    if attribute.HasField("t"):
        _strip_tensor(attribute.t)
    for graph in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
        for tensor in graph.initializer:
            _strip_tensor(tensor)
        for node in graph.node:
            node.name = ""
            for inner in node.attribute:
                _strip(inner)


def _strip_tensor(tensor: onnx.TensorProto) -> None:
    if tensor.data_type in _INTEGERS and sum(tensor.dims) <= STRUCTURAL_SIZE:
        return
    kept = onnx.TensorProto(data_type=tensor.data_type, dims=tensor.dims, name=tensor.name)
    tensor.CopyFrom(kept)


def _short(texts: Iterable[str]) -> str:
    return hashlib.blake2b("\x1f".join(texts).encode(), digest_size=8).hexdigest()
