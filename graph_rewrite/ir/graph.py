"""The graph: nodes, values, tensor types, constants, and edits that share all they can.

Values and nodes are integers inside one graph; names live beside them, so that structure never depends on names.
A graph is immutable by convention: `GraphEditor` makes a new one out of it in time proportional to the edit
(plus flat copies of a few dictionaries).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import onnx

from graph_rewrite.ir.attributes import operator_signature
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.hashing import application_hash, digest
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType


@dataclass(frozen=True, slots=True)
class GraphDelta:
    """Changes by an edit: node ids, and the values whose producer or consumers are no longer the same."""

    removed: frozenset[int]
    inserted: tuple[int, ...]
    rewired: frozenset[int]
    touched: frozenset[int]
    reranked: bool = False
    """Whether all ranks were computed anew."""


@dataclass(slots=True, weakref_slot=True)
class Graph:
    """A dataflow graph over static tensor types.

    `stored` are initializers that are never folded: those that are also inputs, which a caller may override, and
    sparse ones. `header` is the model without nodes and initializers; saving fills it. `ranks` is a topological
    numbering: a node's rank is greater than the ranks of all producers of its inputs.
    """

    nodes: dict[int, Node]
    types: dict[int, TensorType | None]
    constants: dict[int, Constant]
    producer: dict[int, int]
    consumers: dict[int, tuple[int, ...]]
    ranks: dict[int, float]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    names: dict[int, str]
    output_names: tuple[str, ...]
    stored: Mapping[int, Constant]
    header: onnx.ModelProto
    opset: int
    next_id: int
    disabled_optimizers: frozenset[str] = frozenset()
    session_settings: tuple[tuple[str, bool | int | str], ...] = ()
    """Settings of the session that this graph asks for, by name and sorted (`graph_rewrite.runtime.Deployment`)."""
    memo: GraphMemo = field(default_factory=GraphMemo, repr=False, compare=False)
    edit: Edit | None = field(default=None, repr=False, compare=False)
    """The edit that made this graph, while the graph before it is kept."""

    def order(self) -> list[Node]:
        """Return the nodes in topological order, always the same one."""
        if self.memo.order is None:
            ranks = self.ranks
            self.memo.order = sorted(self.nodes.values(), key=lambda node: (ranks[node.id], node.id))
        return self.memo.order

    def roots(self) -> frozenset[int]:
        """Return the values that must stay: the outputs."""
        if self.memo.roots is None:
            self.memo.roots = frozenset(self.outputs)
        return self.memo.roots

    def is_typed(self) -> bool:
        """Tell whether every value has a static type."""
        if self.memo.is_typed is None:
            self.memo.is_typed = None not in self.types.values()
        return self.memo.is_typed

    def node_of(self, value: int) -> Node | None:
        """Return the node that produces `value`; None for inputs and constants."""
        node_id = self.producer.get(value)
        return None if node_id is None else self.nodes[node_id]

    @property
    def hash(self) -> str:
        """Canonical structural hash: independent of names and of the order of nodes and initializers, sensitive to
        operators, attributes, types, weights, refused optimisers and session settings. An operator computed twice is
        not the same as one computed once and used twice."""
        if self.memo.hash is None:
            values = self.value_hashes()
            outputs, aliases = [values[value] for value in self.outputs], self.output_aliases()
            identity = operator_signature("Identity", "", {})
            for i in aliases:
                outputs[i] = application_hash(identity, 1, [outputs[i]]) + ":0"
            self.memo.hash = digest(
                self.opset,
                *self._domain_versions(),
                *self._input_types(),
                "outputs",
                *outputs,
                "nodes",
                *sorted(
                    [values[node.outputs[0]] for node in self.nodes.values() if node.outputs]
                    + [outputs[i] for i in aliases]
                ),
                "refused",
                *sorted(self.disabled_optimizers),
                *(("settings", *map(str, self.session_settings)) if self.session_settings else ()),
            )
        return self.memo.hash

    @property
    def named_hash(self) -> str:
        """The hash with the names of inputs and outputs, for what feeds or reads them by name."""
        return digest(self.hash, *(self.names[value] for value in self.inputs), "outputs", *self.output_names)

    def captured(self) -> frozenset[int]:
        """Return the values that subgraphs of opaque nodes read by name."""
        if self.memo.captured is None:
            readers = (node for node in self.nodes.values() if node.captures)
            found = (value for node in readers for value in node.inputs[len(node.inputs) - len(node.captures) :])
            self.memo.captured = frozenset(value for value in found if value is not None)
        return self.memo.captured

    def output_aliases(self) -> list[int]:
        """Return the positions of outputs that a saved model gets by an Identity, since their value bears another name
        already: that of an input, of an earlier output, or one by which a subgraph knows it."""
        named = self.captured().union(self.inputs, self.stored)
        aliases, seen = [], set[int]()
        for i, (name, value) in enumerate(zip(self.output_names, self.outputs, strict=True)):
            if (self.names.get(value) != name) if value in named else (value in seen):
                aliases.append(i)
            seen.add(value)
        return aliases

    def _input_types(self) -> list[str]:
        """Return the types of the inputs as texts; of sequences and optional values, as they are declared."""
        declared = {info.name: info.type for info in self.header.graph.input if not info.type.HasField("tensor_type")}
        found = []
        for value in self.inputs:
            other = declared.get(self.names.get(value, "")) if self.types[value] is None else None
            found.append(str(self.types[value]) if other is None else repr(other.SerializeToString(deterministic=True)))
        return found

    def _domain_versions(self) -> list[str]:
        """Return the versions of the operator sets in use beside ONNX's own; 1 where a rewrite brought the domain
        in."""
        versions = {entry.domain: entry.version for entry in self.header.opset_import}
        domains = {node.domain for node in self.nodes.values()} - {""}
        return [f"{domain}:{versions.get(domain, 1)}" for domain in sorted(domains)]

    def value_hashes(self, near: Graph | None = None) -> dict[int, str]:
        """Return a digest per value of everything that it is computed from.

        Digests of values that a graph `near` this one computes by the same nodes from the same values are taken from
        there. By default that is the graph before the last rewrite.
        """
        if self.memo.value_hashes is None:
            self.memo.value_hashes = self._value_hashes(near or (None if self.edit is None else self.edit.before))
        return self.memo.value_hashes

    def _value_hashes(self, near: Graph | None) -> dict[int, str]:
        values = {value: constant.digest for value, constant in self.constants.items()}
        values |= {value: constant.digest for value, constant in self.stored.items()}
        values |= {value: f"in{i}:{values.get(value, '')}" for i, value in enumerate(self.inputs)}
        known: dict[int, str] = {} if near is None else near.memo.value_hashes or {}
        same = near.nodes if near is not None and known else {}
        changed = set[int | None]()
        for node in self.order():
            if same.get(node.id) is node and changed.isdisjoint(node.inputs):
                for value in node.outputs:
                    values[value] = known[value]
                continue
            parts = ["-" if value is None else values.get(value) or self._free(value) for value in node.inputs]
            key = application_hash(node.signature, len(node.outputs), parts)
            for i, value in enumerate(node.outputs):
                values[value] = made = f"{key}:{i}"
                if known.get(value) != made:
                    changed.add(value)
        for value in self.outputs:
            values.setdefault(value, self._free(value))
        return values

    def _free(self, value: int) -> str:
        """Return a substitute for the digest of a value that nothing in the graph defines."""
        return f"free:{self.names.get(value, value)}"

    def with_disabled_optimizers(self, names: Iterable[str]) -> Graph:
        """Return the same graph with another set of refused runtime optimisers."""
        return replace(self, disabled_optimizers=frozenset(names), memo=GraphMemo(), edit=None)

    def with_session_settings(self, settings: Mapping[str, bool | int | str]) -> Graph:
        """Return the same graph with other session settings."""
        return replace(self, session_settings=tuple(sorted(settings.items())), memo=GraphMemo(), edit=None)


class Edit(NamedTuple):
    """An edit: the graph before it, and what it changed."""

    before: Graph
    delta: GraphDelta


KEPT_ANCESTORS = 16
"""Edits back to which a graph keeps the graphs that it came from. What is known of a graph that is kept need not be
computed anew for the graphs after it; older ones are released, or a chain of edits would hold them all."""


def record_edit(graph: Graph, before: Graph, delta: GraphDelta) -> None:
    """Record that an edit of `before` made `graph`, and release ancestors that are too old."""
    graph.edit = Edit(before, delta)
    oldest = before
    for _ in range(KEPT_ANCESTORS - 1):
        if oldest.edit is None:
            return
        oldest = oldest.edit.before
    oldest.edit = None


def consumers_of(nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """Return the ids of the nodes that read each value, in the order of `nodes`, once for each operand."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None:
                found.setdefault(value, []).append(node.id)
    return {value: tuple(readers) for value, readers in found.items()}
