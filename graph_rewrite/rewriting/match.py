"""Match: an occurrence of a pattern, as a rule's condition and target see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.patterns import Pattern, PatternNode
from graph_rewrite.rewriting.replacement import Ref


@dataclass(slots=True)
class Bindings:
    """Variables, nodes and attributes that a partial match has bound; cheap to copy."""

    variables: dict[str, Any] = field(default_factory=dict)
    nodes: dict[PatternNode, Node] = field(default_factory=dict)
    attrs: dict[str, Any] = field(default_factory=dict)

    def copy(self) -> Bindings:
        return Bindings(dict(self.variables), dict(self.nodes), dict(self.attrs))


class Match:
    """An occurrence of a pattern in a graph.

    Rules read it by `m.attr(name)`, `m.node(label)` and `m.value(label)`; the pattern's variables come as `Ref`s. A
    condition looks beyond the pattern by `producer`, `consumers` and `is_output` alone: what these read is recorded, so
    that the rule is tried again after an edit there.
    """

    def __init__(self, graph: Graph, pattern: Pattern, bindings: Bindings, reads: set[int]) -> None:
        self.graph, self.pattern, self._bindings = graph, pattern, bindings
        self.reads = reads
        """Values whose producer or consumers were read; what is found of the match holds while these stay."""
        self.refs: tuple[Any, ...] = tuple([self._ref_of(bindings.variables[var.name]) for var in pattern.variables])
        """A Ref per variable (None for an input left out, a tuple for `Values`)."""

    def within(self, graph: Graph) -> Match:
        """Return this match in a graph in which it holds, such as the one that it was found in."""
        return Match(graph, self.pattern, self._bindings, self.reads)

    def release(self) -> None:
        """Let go of the graph, once a site is built: only `nodes`, `anchor`, `root_values`, `refs` and the attributes
        can be read after that."""
        _ = self.nodes, self.root_values
        del self.graph

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """Return the matched nodes, in the order of the pattern."""
        return tuple(self._bindings.nodes[p] for p in self.pattern.nodes)

    @property
    def anchor(self) -> Node:
        return self._bindings.nodes[self.pattern.anchor]

    @property
    def opset(self) -> int:
        return self.graph.opset

    def attr(self, name: str) -> Any:
        """Return the attribute bound as `op.attr(name)`."""
        return self._bindings.attrs[name]

    def node(self, label: str) -> Node:
        """Return the node matched by the pattern node with this label."""
        return next(self._bindings.nodes[p] for p in self.pattern.nodes if p.label == label)

    def attrs(self, label: str) -> dict[str, Any]:
        """Return a copy of the attributes of the node with this label."""
        return dict(self.node(label).attrs)

    def value(self, label: str, index: int = 0) -> Ref:
        """Return an output of the node with this label."""
        return self.ref(self.node(label).outputs[index])

    def root(self, index: int = 0) -> Ref:
        """Return the value that root `index` of the pattern computes."""
        return self.ref(self.root_values[index])

    @cached_property
    def root_values(self) -> tuple[int, ...]:
        return tuple(self._bindings.nodes[root.node].outputs[root.index] for root in self.pattern.roots)

    def ref(self, value: int) -> Ref:
        """Return a value of the graph as a Ref.

        Raises:
            InvalidRewriteError: the value has no static type.
        """
        type = self.graph.types[value]
        if type is None:
            raise InvalidRewriteError(f"value {value} has no static type")
        return Ref(type, external=value, constant=self.graph.constants.get(value))

    def producer(self, ref: Ref) -> Node | None:
        """Return the node that computes a value, for conditions that look beyond the pattern."""
        if ref.external is None:
            return None
        self.record_read(ref.external)
        return self.graph.node_of(ref.external)

    def consumers(self, ref: Ref) -> tuple[Node, ...]:
        """Return the nodes that read a value, for conditions that look beyond the pattern."""
        if ref.external is None:
            return ()
        self.record_read(ref.external)
        return tuple(self.graph.nodes[n] for n in dict.fromkeys(self.graph.consumers.get(ref.external, ())))

    def is_output(self, ref: Ref) -> bool:
        """Tell whether a value is an output of the graph, or pinned by an opaque subgraph."""
        if ref.external is not None:
            self.record_read(ref.external)
        return ref.external in self.graph.roots()

    def record_read(self, value: int) -> None:
        """Record that a rule's result depends on the producer or the consumers of a value. `producer`, `consumers` and
        `is_output` do so themselves."""
        self.reads.add(value)

    def _ref_of(self, bound: Any) -> Any:
        if bound is None:
            return None
        return tuple(self.ref(v) for v in bound) if isinstance(bound, tuple) else self.ref(bound)
