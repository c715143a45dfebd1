"""Names for the nodes and values of a saved model: those of the loaded file where they survive, and for what rewrites
brought in names that say where it comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.onnx_files.subgraphs import inner_names

_KNOWN_VALUES = MemoKey[frozenset[str]]("known names of values")


@dataclass(frozen=True, slots=True)
class GraphNames:
    """Names for saving a graph. No two values share a name, nor do two inserted nodes.

    An inserted node is called `<name of the loaded node that was rewritten>/<rule>`, its results and the constants that
    it brought in after it. Equal graphs of equal history get equal names.
    """

    nodes: dict[int, str]
    values: dict[int, str]
    """An output that is left out is called ""."""
    aliases: dict[int, str]
    """Nodes that copy a value to an output, by the position of the output (`Graph.output_aliases`)."""


def names_for_saving(graph: Graph) -> GraphNames:
    """Return a name for every node and value of a graph."""
    kept = {node.id: node.proto.name for node in graph.nodes.values() if node.proto is not None}
    fresh = FreshNames(frozenset(kept.values()))
    nodes = {
        node.id: kept[node.id] if node.id in kept else fresh.like(_origin(graph, node.id)) for node in graph.order()
    }
    aliases = {i: fresh.like(f"output_{graph.output_names[i]}") for i in graph.output_aliases()}
    values, fresh = _kept_names(graph), FreshNames(_known_values(graph))
    for value, about in _unnamed_values(graph, nodes):
        if value not in values:
            values[value] = fresh.like(about)
    return GraphNames(nodes, values, aliases)


def _origin(graph: Graph, node_id: int) -> str:
    """Return what an inserted node is called after: where it comes from, or the value of the loaded file that it
    computes."""
    node = graph.nodes[node_id]
    if node.origin is not None and _is_name(node.origin[0]):
        return "/".join(filter(None, node.origin))
    known = next((graph.names[value] for value in node.outputs if _is_name(graph.names.get(value))), None)
    return f"rewritten_{node_id}" if known is None else f"{known}/{node.op}"


def _is_name(name: str | None) -> bool:
    # "\0" begins the name of an output that is left out, "#" that of a node without any.
    return bool(name) and not str(name).startswith(("\0", "#"))


def _kept_names(graph: Graph) -> dict[int, str]:
    """Return the names of values that are those of an output, or of the loaded file where they still fit."""
    fixed = graph.captured().union(graph.inputs, graph.stored)
    names = {value: graph.names[value] for value in fixed}
    for name, value in zip(graph.output_names, graph.outputs, strict=True):
        names.setdefault(value, name)
    taken = {*names.values(), *graph.output_names}
    for value in (*graph.producer, *graph.constants):
        original = graph.names.get(value)
        if value in names or original is None:
            continue
        if not original.startswith("\0"):
            if original not in taken:
                names[value] = original
        elif not graph.consumers.get(value):
            names[value] = ""
    return names


def _unnamed_values(graph: Graph, nodes: dict[int, str]) -> Iterator[tuple[int, str]]:
    """Yield every value with what it is called where it has no name: after the node that computes it, a constant after
    the first node that reads it."""
    for node in graph.order():
        name = nodes[node.id] or f"{node.op}_{node.id}"
        yield from ((value, f"{name}_in{i}") for i, value in enumerate(node.inputs) if value in graph.constants)
        yield from ((value, f"{name}_out{i or ''}") for i, value in enumerate(node.outputs))
    yield from ((value, f"rewritten_{value}") for value in graph.constants)


class FreshNames:
    """Names that nothing bears yet."""

    def __init__(self, known: frozenset[str]) -> None:
        self._known = known
        self._counts: dict[str, int] = {}

    def like(self, name: str, ending: str = "") -> str:
        """Return a name with an ending, and with a number between them where it is taken already."""
        wanted = free = f"{name}{ending}"
        while free in self._known or free in self._counts:
            self._counts[wanted] = self._counts.get(wanted, 1) + 1
            free = f"{name}_{self._counts[wanted]}{ending}"
        self._counts.setdefault(free, 1)
        return free


def _known_values(graph: Graph) -> frozenset[str]:
    """Return the names of the loaded file's values, those inside of subgraphs included."""
    known = graph.memo.get(_KNOWN_VALUES)
    if known is None:
        protos = [node.proto for node in graph.nodes.values() if node.proto is not None]
        inner = {name for proto in protos for name in inner_names(proto)}
        known = frozenset({*graph.names.values(), *graph.output_names, *inner})
        graph.memo.put(_KNOWN_VALUES, known)
    return known
