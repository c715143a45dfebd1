"""The content of a drawing of one site: what a rewrite takes out of a graph, and what it puts in its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.body_sites import BodySite
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.matching import schema_default
from graph_rewrite.rewriting.replacement import Ref
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.rulebook.drawing import Diagram, DrawnNode, DrawnOperand
from graph_rewrite.rulebook.values import attribute_text, constant_text


def diagrams_of_site(graph: Graph, site: Site) -> tuple[Diagram, Diagram]:
    """Return the part of `graph` that a rewrite of this site replaces, and its replacement. Values of the graph bear
    the names of the loaded file and their types; the operators of the file bear their names.

    Raises:
        InvalidRewriteError: the rewrite gives no valid graph.
    """
    if isinstance(site, BodySite):
        return diagrams_of_site(site.inner.graph, site.inner.site)
    names = tuple(_value_text(graph, value) for value in site.match.root_values)
    edit = Candidate("site", graph, (site,)).apply().edit
    # Of a rule that looks beyond its match, more dies than what it matches.
    gone = {node.id for node in site.match.nodes}.union(() if edit is None else edit.delta.removed)
    return _source(graph, gone, site.match.root_values, names), _target(graph, site, names)


def _source(graph: Graph, gone: Iterable[int], roots: Sequence[int], names: tuple[str, ...]) -> Diagram:
    nodes = [graph.nodes[i] for i in sorted(gone, key=lambda i: (graph.ranks[i], i)) if i in graph.nodes]
    made = {value: (i, k) for i, node in enumerate(nodes) for k, value in enumerate(node.outputs)}

    def operand(value: int | None) -> DrawnOperand:
        if value is not None and value in made:
            return DrawnOperand(step=made[value][0], index=made[value][1])
        return _outside(graph, value)

    steps = tuple(
        DrawnNode(
            node.op,
            tuple(map(operand, node.inputs)),
            _attributes(node.op, node.domain, node.attrs),
            len(node.outputs),
            _node_name(node),
        )
        for node in nodes
    )
    return Diagram(steps, tuple(map(operand, roots)), names)


def _target(graph: Graph, site: Site, names: tuple[str, ...]) -> Diagram:
    def operand(ref: Ref | None) -> DrawnOperand:
        if ref is None or ref.external is not None:
            return _outside(graph, None if ref is None else ref.external)
        if ref.constant is not None:
            return DrawnOperand(constant_text(ref.constant), constant=True)
        return DrawnOperand(step=ref.node, index=ref.index)

    replacement = site.replacement
    steps = tuple(
        DrawnNode(
            node.op, tuple(map(operand, node.inputs)), _attributes(node.op, node.domain, node.attrs), len(node.types)
        )
        for node in replacement.nodes
    )
    return Diagram(steps, tuple(map(operand, replacement.outputs)), names)


def _outside(graph: Graph, value: int | None) -> DrawnOperand:
    """Return a value of the graph that the drawing begins with."""
    if value is None:
        return DrawnOperand("-", constant=True)
    constant = graph.constants.get(value)
    if constant is None:
        return DrawnOperand(_value_text(graph, value))
    name, text = graph.names.get(value), constant_text(constant)
    return DrawnOperand(text if name is None else f"{name} {text}", constant=True)


def _value_text(graph: Graph, value: int) -> str:
    """Return a value's name and type; of one that a rewrite made, where it comes from."""
    name, node = graph.names.get(value), graph.node_of(value)
    if name is None:
        name = "/".join(node.origin) if node is not None and node.origin is not None else f"v{value}"
    type = graph.types.get(value)
    return name if type is None else f"{name} {type}"


def _node_name(node: Node) -> str:
    if node.proto is not None:
        return str(node.proto.name)
    return "" if node.origin is None else "/".join(filter(None, node.origin))


def _attributes(op: str, domain: str, attrs: Mapping[str, AttrValue]) -> tuple[str, ...]:
    """Return the attributes that are not at their defaults."""
    shown = {name: value for name, value in attrs.items() if domain or schema_default(op, name) != value}
    return tuple(f"{name}={attribute_text(value)}" for name, value in sorted(shown.items()))
