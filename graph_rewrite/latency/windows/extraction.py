"""Extraction of some nodes of a graph as a graph of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import onnx

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.subgraphs import inner_names


class NotSeparable(ValueError):
    """A difference of two graphs cannot be timed apart from the rest; the message gives the reason."""


def extract(graph: Graph, ids: Iterable[int], inputs: Mapping[int, TensorType]) -> Graph:
    """Return the nodes `ids` as a graph of their own that reads `inputs` and gives all values needed elsewhere.

    Raises:
        NotSeparable: nothing outside needs any of their results.
    """
    nodes = {n: graph.nodes[n] for n in sorted(ids)}
    producer = {value: n for n, node in nodes.items() for value in node.outputs}
    consumers = consumers_of(nodes.values())
    wanted = graph.roots()
    needed = [v for v in producer if v in wanted or any(c not in nodes for c in graph.consumers.get(v, ()))]
    if not needed:
        raise NotSeparable("nothing outside a window needs its results")
    constants: dict[int, Constant] = {v: graph.constants[v] for v in consumers if v in graph.constants}
    types: dict[int, TensorType | None] = {v: graph.types[v] for v in (*producer, *constants)}
    names = _names(graph, nodes.values(), (*inputs, *needed))
    return Graph(
        nodes, {**types, **inputs}, constants, producer, consumers, {n: graph.ranks[n] for n in nodes}, tuple(inputs),
        tuple(needed), names, tuple(names[value] for value in needed), {}, _header(graph, names, inputs, needed),
        graph.opset, graph.next_id, graph.disabled_optimizers, graph.session_settings,
    )  # fmt: skip


def _names(graph: Graph, nodes: Iterable[Node], values: Sequence[int]) -> dict[int, str]:
    """Return names for values of a window; beside subgraphs, which read by name, those of the loaded file."""
    opaque = [node for node in nodes if node.opaque]
    if not opaque:
        return {value: f"value_{value}" for value in values}
    read = {v for node in opaque for v in node.inputs[len(node.inputs) - len(node.captures) :] if v is not None}
    known = {value: graph.names[value] for value in (*read, *values) if value in graph.names}
    taken = {*known.values(), *(name for node in opaque if node.proto is not None for name in inner_names(node.proto))}
    for value in values:
        if value not in known:
            name = f"value_{value}"
            while name in taken:
                name += "_"
            known[value] = name
    return known


def _header(
    graph: Graph, names: Mapping[int, str], inputs: Mapping[int, TensorType], outputs: Iterable[int]
) -> onnx.ModelProto:
    header = onnx.ModelProto()
    for field, value in graph.header.ListFields():
        if isinstance(value, (int, str)):
            setattr(header, field.name, value)
        elif field.name not in ("graph", "metadata_props"):  # these may be large
            getattr(header, field.name).MergeFrom(value)
    header.graph.name = "window"
    # Types are declared when the graph is written.
    header.graph.input.extend(onnx.ValueInfoProto(name=names[value]) for value in inputs)
    header.graph.output.extend(onnx.ValueInfoProto(name=names[value]) for value in outputs)
    return header
