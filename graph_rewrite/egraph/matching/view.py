"""The view that a rule has of an e-graph: a match with the interface of `graph_rewrite.rewriting.match.Match`.

The pattern, its attributes, types and constants are as in a graph. What a condition reads beyond the pattern has more
than one answer where an e-class holds more than one e-node: then `Ambiguous` is raised, and the rule is refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, cast

from graph_rewrite.egraph.matching.root_joining import FoundMatch
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Pattern, PatternNode
from graph_rewrite.rewriting.replacement import Ref


class Ambiguous(InvalidRewriteError):
    """A condition asked about something that differs between the members of an e-class."""


class _Types(Mapping[int, "TensorType | None"]):
    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph

    def __getitem__(self, cls: int) -> TensorType | None:
        return self._egraph.type_of(cls)

    def __iter__(self) -> Iterator[int]:
        return iter(self._egraph.classes())

    def __len__(self) -> int:
        return len(self._egraph.classes())


class _Constants(Mapping[int, Constant]):
    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph

    def __getitem__(self, cls: int) -> Constant:
        return self._egraph.constants[self._egraph.find(cls)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._egraph.constants)

    def __len__(self) -> int:
        return len(self._egraph.constants)


class GraphView:
    """The members of `Graph` that rules use, over an e-graph: values are e-classes."""

    def __init__(self, egraph: EGraph) -> None:
        self.egraph, self.opset = egraph, egraph.opset
        self.types: Mapping[int, TensorType | None] = _Types(egraph)
        self.constants: Mapping[int, Constant] = _Constants(egraph)

    def roots(self) -> frozenset[int]:
        return frozenset(map(self.egraph.find, self.egraph.roots))

    def node_of(self, cls: int) -> Node | None:
        """The one application that computes a class; None for inputs and constants.

        Raises:
            Ambiguous: the class has several members.
        """
        egraph = self.egraph
        if egraph.find(cls) in egraph.constants:
            return None
        members = egraph.members(cls)
        if len(members) == 1 and egraph.operator(members[0]).kind == "output":
            members = egraph.members(egraph.args(members[0])[0])
        if len(members) != 1:
            raise Ambiguous("several operators compute the value")
        return None if egraph.operator(members[0]).kind == "input" else node_view(egraph, members[0])

    def readers(self, cls: int) -> tuple[Node, ...]:
        """The applications that read a class.

        Raises:
            Ambiguous: two of them compute the same, so that one of them is left in the end.
        """
        nodes = self.egraph.parents(cls)
        if len({self.egraph.find(node) for node in nodes}) < len(nodes):
            raise Ambiguous("several operators that compute the same read the value")
        return tuple(node_view(self.egraph, node) for node in nodes)


def node_view(egraph: EGraph, node: int) -> Node:
    """An application as a `Node` whose inputs and outputs are classes."""
    operator = egraph.operator(node)
    inputs = tuple(None if arg < 0 else arg for arg in egraph.args(node))
    return Node(
        node, operator.op, inputs, egraph.outputs_of(node), operator.attrs, operator.domain, opaque=operator.opaque,
        signature=operator.signature,
    )  # fmt: skip


class EMatch(Match):
    """An occurrence of a pattern in an e-graph; `external` of its Refs is an e-class. `beyond` tells whether a
    condition has looked beyond the pattern, `private` whether it has looked at the e-graph itself."""

    def __init__(self, view: GraphView, pattern: Pattern, found: FoundMatch) -> None:
        self._view, self._found = view, found
        super().__init__(cast(Graph, view), pattern, cast(Any, found), set())
        self._nodes: dict[PatternNode, Node] = {}
        self.beyond = self.private = False

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(map(self._node, self.pattern.nodes))

    @property
    def anchor(self) -> Node:
        return self._node(self.pattern.anchor)

    def node(self, label: str) -> Node:
        return self._node(next(p for p in self.pattern.nodes if p.label == label))

    @cached_property
    def root_values(self) -> tuple[int, ...]:
        return tuple(self._node(root.node).outputs[root.index] for root in self.pattern.roots)

    @property
    def graph(self) -> Graph:
        self.private = True
        return cast(Graph, self._view)

    @graph.setter
    def graph(self, view: Graph) -> None:
        """Set by the base class."""

    @property
    def opset(self) -> int:
        return self._view.opset

    def ref(self, value: int) -> Ref:
        egraph = self._view.egraph
        cls = egraph.find(value)
        type = egraph.types[cls]
        if type is None:
            raise InvalidRewriteError(f"class {cls} has no static type")
        return Ref(type, external=cls, constant=egraph.constants.get(cls))

    def producer(self, ref: Ref) -> Node | None:
        self.beyond = True
        return None if ref.external is None else self._view.node_of(ref.external)

    def consumers(self, ref: Ref) -> tuple[Node, ...]:
        self.beyond = True
        return () if ref.external is None else self._view.readers(ref.external)

    def is_output(self, ref: Ref) -> bool:
        self.beyond = True
        return ref.external is not None and self._view.egraph.find(ref.external) in self._view.roots()

    def _node(self, pattern: PatternNode) -> Node:
        node = self._nodes.get(pattern)
        if node is None:
            node = self._nodes[pattern] = node_view(self._view.egraph, self._found.nodes[pattern])
        return node
