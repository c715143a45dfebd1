"""Edits: a new graph is made out of an old one and shares all it can with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import onnx

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph, GraphDelta
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.ordering import topological_ranks
from graph_rewrite.ir.tensor_type import TensorType


class GraphEditor:
    """Collect one edit and make the new graph. An editor cannot be used again after `finish`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes, self.types = graph.nodes.copy(), graph.types.copy()
        self.constants, self.producer = graph.constants.copy(), graph.producer.copy()
        self.consumers, self.ranks = graph.consumers.copy(), graph.ranks.copy()
        self.outputs, self.names, self.next_id = graph.outputs, graph.names, graph.next_id
        self.disabled_optimizers, self.session_settings = graph.disabled_optimizers, graph.session_settings
        self._removed: set[int] = set()
        self._inserted: dict[int, None] = {}
        self._rewired: set[int] = set()
        self._touched: set[int] = set()

    def new_value(self, type: TensorType | None, constant: Constant | None = None) -> int:
        value, self.next_id = self.next_id, self.next_id + 1
        self.types[value] = type
        if constant is not None:
            self.constants[value] = constant
        return value

    def remove(self, node: Node) -> None:
        """Remove a node; its outputs lose their producer until another node is inserted for them."""
        del self.nodes[node.id], self.ranks[node.id]
        self._unlink(node)
        for value in node.outputs:
            del self.producer[value]
            self._touched.add(value)
        self._removed.add(node.id)
        self._inserted.pop(node.id, None)

    def insert(
        self,
        op: str,
        domain: str,
        attrs: Mapping[str, AttrValue],
        inputs: Sequence[int | None],
        outputs: Sequence[int],
        rank: float,
        signature: str | None = None,
        origin: tuple[str, str] | None = None,
        proto: onnx.NodeProto | None = None,
        captures: Sequence[str] = (),
        bodies: object = None,
    ) -> Node:
        """Insert a node; one with `proto` is opaque, and may come with what is known of its `bodies`."""
        node = Node(
            self.next_id, op, inputs, outputs, attrs, domain, proto, proto is not None, signature, captures, origin
        )
        node.bodies = bodies
        self.next_id += 1
        self.nodes[node.id], self.ranks[node.id] = node, rank
        self._link(node)
        for value in outputs:
            self.producer[value] = node.id
            self._touched.add(value)
        self._inserted[node.id] = None
        return node

    def replace_value(self, old: int, new: int) -> None:
        """Let every consumer of `old`, and every output, read `new` instead."""
        for node_id in dict.fromkeys(self.consumers.get(old, ())):
            node = self.nodes[node_id]
            self._unlink(node)
            changed = node.with_inputs([new if value == old else value for value in node.inputs])
            self.nodes[node_id] = changed
            self._link(changed)
            self._touched.update(changed.outputs)
            self._rewired.add(node_id)
        if old in self.outputs:
            self.outputs = tuple(new if value == old else value for value in self.outputs)
        self._touched.update((old, new))

    def forget(self, values: Iterable[int]) -> None:
        """Drop values that nothing produces or reads any more."""
        kept = {*self.outputs, *self._graph.inputs, *self._graph.stored}
        for value in values:
            if value not in kept and value not in self.producer and not self.consumers.get(value):
                self.types.pop(value, None)
                self.consumers.pop(value, None)
                self.constants.pop(value, None)

    def remove_dead(self, values: Iterable[int]) -> None:
        """Remove the nodes that computed `values` where nothing uses any of their results, and so on upward. Opaque
        nodes stay."""
        pending, outputs = list(values), set(self.outputs)
        while pending:
            node_id = self.producer.get(pending.pop())
            if node_id is None:
                continue
            node = self.nodes[node_id]
            if node.opaque or any(v in outputs or self.consumers.get(v) for v in node.outputs):
                continue
            self.remove(node)
            read = [value for value in node.inputs if value is not None]
            self.forget((*node.outputs, *read))
            pending.extend(read)

    def finish(self) -> tuple[Graph, GraphDelta]:
        source = self._graph
        graph = Graph(
            self.nodes, self.types, self.constants, self.producer, self.consumers, self.ranks, source.inputs,
            self.outputs, self.names, source.output_names, source.stored, source.header, source.opset, self.next_id,
            self.disabled_optimizers, self.session_settings,
        )  # fmt: skip
        inserted = tuple(self._inserted)
        delta = GraphDelta(
            frozenset(self._removed), inserted, frozenset(self._rewired) - self._removed, frozenset(self._touched)
        )
        if self._ranks_broken(delta):
            graph.ranks = topological_ranks(graph)
            delta = replace(delta, reranked=True)
        return graph, delta

    def _ranks_broken(self, delta: GraphDelta) -> bool:
        ranks, producer = self.ranks, self.producer
        for node_id in (*delta.inserted, *delta.rewired):
            node, rank = self.nodes[node_id], ranks[node_id]
            for value in node.inputs:
                if value in producer and ranks[producer[value]] >= rank:
                    return True
            for value in node.outputs:
                if any(ranks[consumer] <= rank for consumer in self.consumers.get(value, ())):
                    return True
        return False

    def _link(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None:
                self.consumers[value] = (*self.consumers.get(value, ()), node.id)
                self._touched.add(value)

    def _unlink(self, node: Node) -> None:
        for value in node.inputs:
            if value is not None:
                rest = list(self.consumers[value])
                rest.remove(node.id)
                self.consumers[value] = tuple(rest)
                self._touched.add(value)
