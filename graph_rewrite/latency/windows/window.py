"""Windows: the subgraphs around a change, taken out of both graphs with a margin of neighbours, as two small models.

Graphs of one search share their nodes: `Candidate.apply` keeps what it does not change. So the difference is known by
identity, in time proportional to the graphs' size and without comparing any weight.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import onnx

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import application_hash, digest
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.windows.extraction import NotSeparable, extract
from graph_rewrite.latency.windows.thinning import thin

MARGIN = 3
"""Neighbours in each direction that a window takes in, so that ONNX Runtime fuses across its border as in the whole
model."""

READERS = 6
"""Readers of a value that a window for trying rewrites takes in, at most, those first that come first. Others are like
them: in DenseNet (Huang et al. 2017, arXiv:1608.06993, section 3) every later layer of a block reads what one gives."""
_LARGE = 16
HEAVY = frozenset(
    {
        "Attention", "Conv", "ConvInteger", "ConvTranspose", "DeformConv", "Einsum", "GRU", "Gemm", "LSTM", "MatMul",
        "MatMulInteger", "QLinearConv", "QLinearMatMul", "RNN",
    }
)  # fmt: skip
"""Operators at which a margin ends. Next to a change they are kept, for a fusion may take them in, but not what lies
behind them; elsewhere they are left out, for each costs more than most differences and its noise would hide them."""


@dataclass(frozen=True, slots=True)
class WindowPair:
    """A window before and after a change, as models with the same inputs, and the number of sites that are alike.

    `key` is equal for alike sites: the same operators on the same shapes, whatever the weights.
    """

    before: Graph
    after: Graph
    count: int
    key: str


@dataclass(frozen=True, slots=True)
class ChangedNodes:
    """The window of a change, and the ids of all nodes that changed in windows of its kind."""

    window: WindowPair
    nodes: frozenset[int]
    """Nodes of the graph before the change."""


@dataclass(frozen=True, slots=True)
class _Change:
    """Ids of nodes that belong together: those only the graph before has, and those only the graph after has."""

    before: frozenset[int]
    after: frozenset[int]


def changed_windows(before: Graph, after: Graph, margin: int = MARGIN) -> list[WindowPair]:
    """Return the windows in which two graphs differ, one of each kind with its count; none where they do not differ.

    Raises:
        NotSeparable: as `changes_by_kind` does.
    """
    return [change.window for change in changes_by_kind(before, after, margin)]


def changes_by_kind(before: Graph, after: Graph, margin: int = MARGIN) -> list[ChangedNodes]:
    """Return the windows in which two graphs differ, one of each kind, with the nodes of `before` that changed in all
    windows of the kind.

    Raises:
        NotSeparable: the graphs refuse different optimisers of ONNX Runtime or have different session settings, which
            acts on the whole model; they have no nodes in common; or a window has values of unknown type, initializers
            that a caller may override, or a Loop of as many turns as the rest of the model says.
    """
    if before.disabled_optimizers != after.disabled_optimizers:
        names = ", ".join(sorted(before.disabled_optimizers ^ after.disabled_optimizers))
        raise NotSeparable(f"a deployment choice acts on the whole model: {names}")
    if before.session_settings != after.session_settings:
        raise NotSeparable("a session setting acts on the whole model")
    if before.opset != after.opset:
        raise NotSeparable(f"the graphs have different operator sets, {before.opset} and {after.opset}")
    found: dict[str, ChangedNodes] = {}
    for change in _changes(before, after):
        pair = _pair(before, after, change, _margin(before, after, change, margin))
        known = found.get(pair.key)
        if known is None:
            found[pair.key] = ChangedNodes(pair, change.before)
        else:
            window = replace(known.window, count=known.window.count + 1)
            found[pair.key] = ChangedNodes(window, known.nodes | change.before)
    return list(found.values())


def _changes(before: Graph, after: Graph) -> Iterator[_Change]:
    """Yield the nodes that are not the same object in both graphs, in groups that no shared node separates."""
    old = {n for n, node in before.nodes.items() if after.nodes.get(n) is not node}
    new = {n for n, node in after.nodes.items() if before.nodes.get(n) is not node}
    if len(old) == len(before.nodes):
        raise NotSeparable("the graphs share no nodes: all of the graph changed, or neither was made from the other")
    groups = _Groups()
    for graph, ids in ((before, old), (after, new)):
        for node_id in ids:
            # A node that was only rewired has one id in both graphs; a replaced root is one value of two producers.
            groups.join(("node", node_id), *(("value", value) for value in graph.nodes[node_id].outputs))
            for value in graph.nodes[node_id].inputs:
                if value is not None and graph.producer.get(value) in ids:
                    groups.join(("node", node_id), ("value", value))
    parts: dict[tuple[str, int], tuple[set[int], set[int]]] = {}
    for side, ids in enumerate((old, new)):
        for node_id in sorted(ids):
            parts.setdefault(groups.root(("node", node_id)), (set(), set()))[side].add(node_id)
    for removed, inserted in parts.values():
        yield _Change(frozenset(removed), frozenset(inserted))


class _Groups:
    """Union-find over nodes and values."""

    def __init__(self) -> None:
        self._parent: dict[tuple[str, int], tuple[str, int]] = {}

    def root(self, item: tuple[str, int]) -> tuple[str, int]:
        self._parent.setdefault(item, item)
        while self._parent[item] != item:
            self._parent[item] = item = self._parent[self._parent[item]]
        return item

    def join(self, first: tuple[str, int], *others: tuple[str, int]) -> None:
        for other in others:
            self._parent[self.root(other)] = self.root(first)


def _margin(before: Graph, after: Graph, change: _Change, steps: int) -> frozenset[int]:
    """Shared nodes within `steps` of a change in either graph; heavy ones only next to it, and none behind them."""
    near = {node for graph, ids in ((before, change.before), (after, change.after)) for node in _around(graph, ids)}
    found: set[int] = set()
    # Where a side has nothing of its own, as where nodes are only removed, it needs a neighbour to be a model.
    for step in range(steps if change.before and change.after else max(steps, 1)):
        # Changed nodes of other windows are no one's margin: they would be counted twice.
        new = {n for n in near - found if n in before.nodes and after.nodes.get(n) is before.nodes[n]}
        new = {n for n in new if not before.nodes[n].opaque and _is_typed(before, before.nodes[n])}
        new = {n for n in new if step == 0 or before.nodes[n].op not in HEAVY}
        found |= new
        passable = [n for n in new if before.nodes[n].op not in HEAVY]
        near = {node for graph in (before, after) for node in _around(graph, passable)}
    return frozenset(found)


def _around(graph: Graph, ids: Iterable[int]) -> Iterator[int]:
    for node_id in ids:
        node = graph.nodes[node_id]
        yield from (graph.producer[value] for value in node.inputs if value is not None and value in graph.producer)
        yield from (reader for value in node.outputs for reader in graph.consumers.get(value, ()))


def _is_typed(graph: Graph, node: Node) -> bool:
    values = (*node.inputs, *node.outputs)
    return all(v is None or (graph.types.get(v) is not None and v not in graph.stored) for v in values)


def _pair(before: Graph, after: Graph, change: _Change, margin: frozenset[int]) -> WindowPair:
    sides = (before, change.before | margin), (after, change.after | margin)
    inputs: dict[int, TensorType] = {}
    for graph, ids in sides:
        if not ids:
            raise NotSeparable("nothing is left of a window, and it has no neighbours to be timed with")
        for node in map(graph.nodes.__getitem__, ids):
            _check_separable(graph, node)
        # Sorted along the graph, so that alike windows get their inputs in the same order.
        inputs |= _read_from_outside(graph, sorted(ids, key=lambda n, graph=graph: (graph.ranks[n], n)))  # type: ignore[misc]
    small = thin(*(extract(graph, ids, inputs) for graph, ids in sides))
    return WindowPair(*small, 1, digest(*map(shape_key, small)))


def _check_separable(graph: Graph, node: Node) -> None:
    """Refuse a node that cannot be timed apart from the rest."""
    if not _is_typed(graph, node):
        raise NotSeparable(f"{node.op} has values of unknown type or an overridable initializer")
    if node.op == "Loop" and not all(value is None or value in graph.constants for value in node.inputs[:2]):
        raise NotSeparable("a Loop takes as many turns as the rest of the model says")


def window_around(graph: Graph, ids: Iterable[int], margin: int = MARGIN) -> Graph:
    """Return the nodes `ids` and what surrounds them, as a model of its own in which rewrites can be tried out.

    Unlike the windows of `changed_windows`, it takes in heavy readers wherever they are met, since they decide in which
    layout a result is wanted and may absorb what a rewrite leaves behind. Heavy producers are taken in only next to
    `ids`, and what lies behind either stays out. Of a value that many nodes read, `READERS` are taken in. Nodes and
    values keep their ids.

    Raises:
        NotSeparable: one of the nodes has values of unknown type or an overridable initializer, or is a Loop of as many
            turns as the rest of the model says.
    """
    found = set(ids)
    light = set(found)
    for step in range(margin):
        above = {graph.producer[v] for n in light for v in graph.nodes[n].inputs if v in graph.producer}
        if step > 0:
            above = {n for n in above if graph.nodes[n].op not in HEAVY}
        below = {reader for n in light for v in graph.nodes[n].outputs for reader in _first_readers(graph, v)}
        near = (above | below) - found
        near = {n for n in near if not graph.nodes[n].opaque and _is_typed(graph, graph.nodes[n])}
        found |= near
        light = {n for n in near if graph.nodes[n].op not in HEAVY}
    for node in map(graph.nodes.__getitem__, found):
        _check_separable(graph, node)
    in_order = sorted(found, key=lambda n: (graph.ranks[n], n))
    return extract(graph, found, _read_from_outside(graph, in_order))


def _first_readers(graph: Graph, value: int) -> list[int]:
    return sorted(graph.consumers.get(value, ()), key=lambda n: (graph.ranks[n], n))[:READERS]


def _read_from_outside(graph: Graph, ids: Iterable[int]) -> dict[int, TensorType]:
    inside = frozenset(ids)
    found: dict[int, TensorType] = {}
    for node_id in ids:
        for value in graph.nodes[node_id].inputs:
            if value is not None and value not in graph.constants and graph.producer.get(value) not in inside:
                type = graph.types[value]
                assert type is not None  # what is not typed was refused before
                found[value] = type
    return found


def shape_key(graph: Graph) -> str:
    """Return a digest like `Graph.hash` in which large floating-point constants count by type.

    Their values do not change times.
    """
    keys = {value: f"in{i}:{graph.types[value]}" for i, value in enumerate(graph.inputs)}
    keys |= {value: _constant_key(constant) for value, constant in graph.constants.items()}
    found = []
    for node in graph.order():
        key = application_hash(node.signature, len(node.outputs), ("-" if v is None else keys[v] for v in node.inputs))
        found.append(key)
        keys |= {value: f"{key}:{i}" for i, value in enumerate(node.outputs)}
    return digest(*sorted(found), "outputs", *sorted(keys[value] for value in graph.outputs))


def _constant_key(constant: Constant) -> str:
    type = constant.type
    is_weight = type.size > _LARGE and type.dtype in (
        onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16,
    )  # fmt: skip
    return str(type) if is_weight else constant.digest
