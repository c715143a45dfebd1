"""The graph: nodes, values, tensor types, constants, and edits that share all they can.

Values and nodes are integers inside one graph; names live beside them, so that structure never depends on names.
A graph is immutable by convention: `GraphEditor` makes a new one out of it in time proportional to the edit
(plus flat copies of a few dictionaries).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import onnx

from graph_rewrite.ir.attribute_defaults import is_default
from graph_rewrite.ir.constants import Constant

AttrValue = Any  # int, float, str, bytes, tuple of int, float or str, Constant, or RawAttr


class TensorType(NamedTuple):
    """Element type (`onnx.TensorProto.DataType`) and static shape of a value. A tuple, as it is part of the keys of
    most memos."""

    dtype: int
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        size = 1
        for dim in self.shape:
            size *= dim
        return size

    def __str__(self) -> str:
        return _type_text(self.dtype, self.shape)


@cache
def _type_text(dtype: int, shape: tuple[int, ...]) -> str:
    return f"{onnx.TensorProto.DataType.Name(dtype).lower()}[{','.join(map(str, shape))}]"


@dataclass(frozen=True, slots=True)
class RawAttr:
    """An attribute kept bit by bit: subgraphs, sparse tensors, references, type protos."""

    data: bytes

    def proto(self) -> onnx.AttributeProto:
        parsed: onnx.AttributeProto = onnx.AttributeProto.FromString(self.data)
        return parsed


def digest(*parts: object) -> str:
    """A stable 128-bit hexadecimal digest of strings and other values with a faithful `repr`."""
    return text_digest([part if isinstance(part, str) else repr(part) for part in parts])


def text_digest(texts: Iterable[str]) -> str:
    """`digest` of strings alone."""
    return hashlib.blake2b(("\x1f".join(texts) + "\x1f").encode(), digest_size=16).hexdigest()


def _attr_token(value: AttrValue) -> str:
    if isinstance(value, Constant):
        return f"tensor:{value.digest}"
    if isinstance(value, RawAttr):
        return f"raw:{hashlib.blake2b(value.data, digest_size=16).hexdigest()}"
    return f"{type(value).__name__}:{value!r}"


class Node:
    """One operator application. `proto` is the node as loaded (kept for what we don't model), `opaque` forbids rules.

    `captures` are names that subgraphs of an opaque node read from outside; the values they stand for are the last
    of its `inputs`, so that order, cycles and consumers take them into account.
    """

    __slots__ = ("attrs", "captures", "domain", "id", "inputs", "op", "opaque", "outputs", "proto", "signature")

    def __init__(
        self,
        id: int,
        op: str,
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        attrs: Mapping[str, AttrValue] | None = None,
        domain: str = "",
        proto: onnx.NodeProto | None = None,
        opaque: bool = False,
        signature: str | None = None,
        captures: Sequence[str] = (),
    ) -> None:
        self.id, self.op, self.domain = id, op, domain
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self.attrs: Mapping[str, AttrValue] = dict(attrs or {})
        self.proto, self.opaque, self.captures = proto, opaque, tuple(captures)
        self.signature = signature or operator_signature(op, domain, self.attrs)

    def with_inputs(self, inputs: Sequence[int | None]) -> Node:
        return Node(
            self.id, self.op, inputs, self.outputs, self.attrs, self.domain, self.proto, self.opaque, self.signature,
            self.captures,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"Node({self.id}: {self.op}{list(self.inputs)} -> {list(self.outputs)})"


def application_hash(signature: str, outputs: int, inputs: Iterable[str]) -> str:
    """Digest of an operator applied to inputs with these digests; output `i` then has the digest `<digest>:<i>`."""
    return hashlib.blake2b("|".join((signature, str(outputs), *inputs)).encode(), digest_size=16).hexdigest()


def operator_signature(op: str, domain: str, attrs: Mapping[str, AttrValue]) -> str:
    """Digest of operator and attributes, without inputs and outputs. A default that is spelled out changes nothing."""
    # Not floats: 0.0 and -0.0 are equal, and so are 1 and 1.0.
    if not all(map(_is_plain, attrs.values())):
        return _signature(op, domain, attrs)
    key = (op, domain, *attrs.items())
    known = _SIGNATURES.get(key)
    if known is None:
        known = _SIGNATURES[key] = _signature(op, domain, attrs)
    return known


def _signature(op: str, domain: str, attrs: Mapping[str, AttrValue]) -> str:
    told = sorted(name for name, value in attrs.items() if not is_default(op, domain, name, value))
    return digest(op, domain, *(f"{name}={_attr_token(attrs[name])}" for name in told))


def _is_plain(value: AttrValue) -> bool:
    kind = type(value)
    return kind is int or kind is str or (kind is tuple and all(type(item) is int for item in value))


_SIGNATURES: dict[tuple[object, ...], str] = {}


@dataclass(frozen=True, slots=True)
class GraphDelta:
    """What an edit changed: node ids, and the values whose producer or consumers are no longer the same."""

    removed: frozenset[int]
    inserted: tuple[int, ...]
    rewired: frozenset[int]
    touched: frozenset[int]
    reranked: bool = False
    """Whether all ranks were computed anew."""


@dataclass(slots=True)
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
    memo: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def order(self) -> list[Node]:
        """Nodes in topological order; deterministic."""
        cached: list[Node] | None = self.memo.get("order")
        if cached is None:
            ranks = self.ranks
            cached = sorted(self.nodes.values(), key=lambda node: (ranks[node.id], node.id))
            self.memo["order"] = cached
        return cached

    def roots(self) -> frozenset[int]:
        """Values that must stay: the outputs."""
        cached: frozenset[int] | None = self.memo.get("roots")
        if cached is None:
            cached = self.memo["roots"] = frozenset(self.outputs)
        return cached

    def node_of(self, value: int) -> Node | None:
        """The node that produces `value`; None for inputs and constants."""
        node_id = self.producer.get(value)
        return None if node_id is None else self.nodes[node_id]

    @property
    def hash(self) -> str:
        """Canonical structural hash: independent of names and of the order of nodes and initializers, sensitive to
        operators, attributes, types, weights and refused optimisers. An operator computed twice is not the same as
        one computed once and used twice."""
        cached: str | None = self.memo.get("hash")
        if cached is None:
            values = self.value_hashes()
            outputs, aliases = [values[value] for value in self.outputs], self.output_aliases()
            identity = operator_signature("Identity", "", {})
            for i in aliases:
                outputs[i] = application_hash(identity, 1, [outputs[i]]) + ":0"
            cached = digest(
                self.opset,
                *self._domain_versions(),
                *(str(self.types[value]) for value in self.inputs),
                "outputs",
                *outputs,
                "nodes",
                *sorted(
                    [values[node.outputs[0]] for node in self.nodes.values() if node.outputs]
                    + [outputs[i] for i in aliases]
                ),
                "refused",
                *sorted(self.disabled_optimizers),
            )
            self.memo["hash"] = cached
        return cached

    def captured(self) -> frozenset[int]:
        """Values that subgraphs of opaque nodes read by name."""
        cached: frozenset[int] | None = self.memo.get("captured")
        if cached is None:
            readers = (node for node in self.nodes.values() if node.captures)
            found = (value for node in readers for value in node.inputs[len(node.inputs) - len(node.captures) :])
            cached = self.memo["captured"] = frozenset(value for value in found if value is not None)
        return cached

    def output_aliases(self) -> list[int]:
        """Positions of outputs that a saved model gets by an Identity, since their value bears another name already:
        that of an input, of an earlier output, or one by which a subgraph knows it."""
        named = self.captured().union(self.inputs, self.stored)
        aliases, seen = [], set[int]()
        for i, (name, value) in enumerate(zip(self.output_names, self.outputs, strict=True)):
            if (self.names.get(value) != name) if value in named else (value in seen):
                aliases.append(i)
            seen.add(value)
        return aliases

    def _domain_versions(self) -> list[str]:
        """Versions of the operator sets in use beside ONNX's own; 1 where a rewrite brought the domain in."""
        versions = {entry.domain: entry.version for entry in self.header.opset_import}
        domains = {node.domain for node in self.nodes.values()} - {""}
        return [f"{domain}:{versions.get(domain, 1)}" for domain in sorted(domains)]

    def value_hashes(self, near: Graph | None = None) -> dict[int, str]:
        """A digest per value of everything that it is computed from. What a graph `near` this one, by default that
        before the last rewrite, computes by the same nodes from the same values is taken over from there."""
        cached: dict[int, str] | None = self.memo.get("value_hashes")
        if cached is None:
            edit = edit_of(self)
            near = near or (None if edit is None else edit[0])
            cached = self.memo["value_hashes"] = self._value_hashes(near)
        return cached

    def _value_hashes(self, near: Graph | None) -> dict[int, str]:
        values = {value: constant.digest for value, constant in self.constants.items()}
        values |= {value: constant.digest for value, constant in self.stored.items()}
        values |= {value: f"in{i}:{values.get(value, '')}" for i, value in enumerate(self.inputs)}
        known: dict[int, str] = {} if near is None else near.memo.get("value_hashes", {})
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
        """In place of a digest, of a value that nothing in the graph defines."""
        return f"free:{self.names.get(value, value)}"

    def with_disabled_optimizers(self, names: Iterable[str]) -> Graph:
        """The same graph with another set of refused runtime optimisers."""
        from graph_rewrite.ir.editor import GraphEditor

        editor = GraphEditor(self)
        editor.disabled_optimizers = frozenset(names)
        graph, _ = editor.finish()
        return graph


def edit_of(graph: Graph) -> tuple[Graph, GraphDelta] | None:
    """The graph this one was made from by `Candidate.apply`, and what changed."""
    found: tuple[Graph, GraphDelta] | None = graph.memo.get("edit")
    return found


def consumers_of(nodes: Iterable[Node]) -> dict[int, tuple[int, ...]]:
    """Ids of the nodes that read each value, in the order of `nodes`, once for each operand."""
    found: dict[int, list[int]] = {}
    for node in nodes:
        for value in node.inputs:
            if value is not None:
                found.setdefault(value, []).append(node.id)
    return {value: tuple(readers) for value, readers in found.items()}


def topological_ranks(graph: Graph) -> dict[int, float]:
    """Ranks 0, 1, 2, ... by Kahn's algorithm, smallest id first among the ready nodes.

    Raises:
        ValueError: when the graph has a cycle.
    """
    import heapq

    missing: dict[int, int] = {}
    for node in graph.nodes.values():
        missing[node.id] = len({graph.producer[v] for v in node.inputs if v in graph.producer})
    ready = [node_id for node_id, count in missing.items() if count == 0]
    heapq.heapify(ready)
    ranks: dict[int, float] = {}
    while ready:
        node_id = heapq.heappop(ready)
        ranks[node_id] = float(len(ranks))
        successors = {c for value in graph.nodes[node_id].outputs for c in graph.consumers.get(value, ())}
        for consumer in successors:
            missing[consumer] -= 1
            if missing[consumer] == 0:
                heapq.heappush(ready, consumer)
    if len(ranks) != len(graph.nodes):
        stuck = sorted(set(graph.nodes) - set(ranks))[:5]
        raise ValueError(f"the graph has a cycle through nodes {[graph.nodes[n].op for n in stuck]}")
    return ranks


def float32(value: float) -> float:
    """The nearest float32, as a Python float: ONNX stores float attributes so."""
    return float(np.float32(value))
