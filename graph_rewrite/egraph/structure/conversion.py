"""A graph as an e-graph, and a choice of e-nodes as a graph again.

Lossless: converting a graph there and back gives the same graph, node for node (two equal nodes become one). What only
a file knows (names, attributes bit by bit, what nothing reads) is kept beside the e-graph.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping

from graph_rewrite.egraph.structure.classes import ABSENT
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.egraph.structure.operators import Operator
from graph_rewrite.ir.attributes import operator_signature
from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.known import is_repeatable

Choice = Mapping[int, int]
"""A member per class. Classes that no output needs may be left out."""


def from_graph(graph: Graph) -> EGraph:
    """An e-graph in which every class has one member; its roots are the outputs."""
    egraph = EGraph(graph.opset)
    egraph.source = graph
    classes: dict[int, int] = {}

    def class_of(value: int) -> int:
        cls = classes.get(value)
        if cls is None:
            if value in graph.constants:
                cls = egraph.add_constant(graph.constants[value])
            else:
                leaf = egraph.operators.leaf(value, graph.names.get(value, ""))
                (cls,) = egraph.add(leaf, (), [graph.types.get(value)])
            classes[value] = cls
            egraph.values.setdefault(cls, value)
        return cls

    for value in (*graph.inputs, *graph.stored):
        class_of(value)
    for node in graph.order():
        args = [ABSENT if value is None else class_of(value) for value in node.inputs]
        size = egraph.size
        types = [graph.types.get(value) for value in node.outputs]
        outputs = egraph.add(_operator(egraph, graph, node), args, types)
        if node.proto is not None and egraph.size > size:
            first = outputs[0]
            applied = first if len(outputs) == 1 else egraph.args(egraph.members(first)[0])[0]
            egraph.origins[applied] = node.proto
        for value, cls in zip(node.outputs, outputs, strict=True):
            classes[value] = cls
            egraph.values.setdefault(cls, value)
    egraph.roots = tuple(map(class_of, graph.outputs))
    unread = [v for v in graph.constants if v in graph.names and not graph.consumers.get(v) and v not in graph.outputs]
    dead = [
        node.outputs[0]
        for node in graph.order()
        if node.outputs and not any(graph.consumers.get(v) or v in graph.roots() for v in node.outputs)
    ]
    egraph.kept = tuple(dict.fromkeys(map(class_of, (*unread, *dead))))
    return egraph


def _operator(egraph: EGraph, graph: Graph, node: Node) -> Operator:
    left_out = tuple(graph.names.get(v, "").startswith("\0") for v in node.outputs)
    if is_repeatable(node):
        return egraph.operators.application(
            node.op, node.domain, node.attrs, node.signature, len(node.outputs), left_out
        )
    captured = tuple(v for v in node.inputs[len(node.inputs) - len(node.captures) :] if v is not None)
    return egraph.operators.unique(
        node.op, node.domain, node.attrs, node.signature, len(node.outputs), left_out, node.opaque, node.captures,
        captured if node.captures else (),
    )  # fmt: skip


def to_graph(egraph: EGraph, choice: Choice) -> Graph:
    """The graph that a choice stands for.

    Args:
        choice: a member per class that the outputs need, as an extraction gives it.

    Raises:
        ValueError: the choice has a cycle, lacks a class, or the e-graph was not made from a graph.
    """
    if egraph.source is None:
        raise ValueError("this e-graph was not made from a graph: it has no inputs and outputs to be one")
    return _Writer(egraph, egraph.source, choice).write()


class _Writer:
    def __init__(self, egraph: EGraph, source: Graph, choice: Choice) -> None:
        self._egraph, self._source, self._choice = egraph, source, choice
        self._next_id = source.next_id
        self._values: dict[int, int] = {}
        self._taken: set[int] = set(source.inputs) | set(source.stored)
        self._nodes: dict[int, Node] = {}
        self._types: dict[int, TensorType | None] = {}
        self._constants: dict[int, Constant] = {}
        self._names = dict(source.names)

    def write(self) -> Graph:
        source = self._source
        for value in (*source.inputs, *source.stored):
            self._types[value] = source.types.get(value)
        for application in self._applications():
            self._emit(application)
        outputs = tuple(map(self._value, self._egraph.roots))
        for cls in self._egraph.kept:
            self._value(self._egraph.find(cls))
        producer = {value: node.id for node in self._nodes.values() for value in node.outputs}
        consumers = consumers_of(self._nodes.values())
        ranks = {node_id: float(i) for i, node_id in enumerate(self._nodes)}
        return Graph(
            self._nodes, self._types, self._constants, producer, consumers, ranks, source.inputs, outputs, self._names,
            source.output_names, source.stored, source.header, source.opset, self._next_id,
            source.disabled_optimizers, source.session_settings,
        )  # fmt: skip

    def _chosen(self, cls: int) -> int:
        egraph = self._egraph
        cls = egraph.find(cls)
        if cls in egraph.constants:
            return next(m for m in (*egraph.members(cls), ABSENT) if m < 0 or egraph.operator(m).kind == "constant")
        node = self._choice.get(cls)
        if node is None:
            raise ValueError(f"the choice has no member for class {cls}, which the outputs need")
        return node

    def _needs(self, node: int) -> list[int]:
        return [self._egraph.find(arg) for arg in dict.fromkeys(self._egraph.args(node)) if arg >= 0]

    def _applications(self) -> list[int]:
        """Chosen applications in topological order, oldest first among those that are ready."""
        egraph, waiting = self._egraph, dict[int, int]()
        readers: dict[int, list[int]] = {}
        members: dict[int, int] = {}
        stack = list(egraph.canonical_roots())
        while stack:
            cls = egraph.find(stack.pop())
            if cls not in members:
                node = members[cls] = self._chosen(cls)
                needs = [] if node < 0 else self._needs(node)
                waiting[cls] = len(needs)
                for below in needs:
                    readers.setdefault(below, []).append(cls)
                stack.extend(needs)
        ready = [(members[cls], cls) for cls, count in waiting.items() if count == 0]
        heapq.heapify(ready)
        order: list[int] = []
        while ready:
            node, cls = heapq.heappop(ready)
            order.append(node)
            for reader in readers.get(cls, ()):
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    heapq.heappush(ready, (members[reader], reader))
        if len(order) != len(members):
            raise ValueError("the choice has a cycle: no graph computes it")
        self._members = members
        return [node for node in order if node >= 0 and egraph.operator(node).kind == "operator"]

    def _fresh(self) -> int:
        self._next_id += 1
        return self._next_id - 1

    def _claim(self, cls: int) -> int:
        """A value for a class: the one it had in the source graph, or a new one."""
        value = self._egraph.values.get(cls, -1)
        if value < 0 or value in self._taken:
            value = self._fresh()
        self._taken.add(value)
        return value

    def _value(self, cls: int) -> int:
        """The value of a class that is computed already, or needs no computing."""
        egraph = self._egraph
        cls = egraph.find(cls)
        if cls not in self._values:
            operator = None if cls in egraph.constants else egraph.operator(self._chosen(cls))
            if operator is not None and operator.kind == "input":
                value = operator.value
                self._types.setdefault(value, egraph.types[cls])
            else:
                value = self._claim(cls)
                constant = egraph.constants[cls]
                self._constants[value], self._types[value] = constant, constant.type
            self._values[cls] = value
        return self._values[cls]

    def _emit(self, node: int) -> None:
        egraph, operator = self._egraph, self._egraph.operator(node)
        inputs = [None if arg < 0 else self._value(arg) for arg in egraph.args(node)]
        for i, wanted in enumerate(operator.captured, start=len(inputs) - len(operator.captured)):
            inputs[i] = self._under_its_name(inputs[i], wanted)
        outputs = []
        for i, cls in enumerate(egraph.outputs_of(node)):
            mine = operator.outputs == 1 or self._is_output_of(cls, node, i)
            value = self._claim(cls) if mine and cls not in self._values else self._fresh()
            if mine:
                self._values.setdefault(cls, value)
            self._types[value] = egraph.types[cls]
            if operator.left_out and operator.left_out[i]:
                self._names.setdefault(value, f"\0{value}")
            outputs.append(value)
        made = Node(
            self._fresh(), operator.op, inputs, outputs, operator.attrs, operator.domain, egraph.origins.get(node),
            operator.opaque, operator.signature, operator.captures,
        )  # fmt: skip
        self._nodes[made.id] = made

    def _is_output_of(self, cls: int, node: int, index: int) -> bool:
        """Return whether a class takes its value from this output, or takes none at all."""
        chosen = self._members.get(cls)
        if chosen is None:
            return True
        operator = self._egraph.operator(chosen)
        same = operator.kind == "output" and self._egraph.args(chosen)[0] == self._egraph.find(node)
        return same and operator.index == index

    def _under_its_name(self, value: int | None, wanted: int) -> int | None:
        """The value under the identity by whose name a subgraph reads it; a copy where it bears another one."""
        if value is None or value == wanted:
            return value
        if wanted not in self._types:
            self._types[wanted] = self._types[value]
            self._taken.add(wanted)
            if value in self._constants:
                self._constants[wanted] = self._constants[value]
            else:
                signature = operator_signature("Identity", "", {})
                copy = Node(self._fresh(), "Identity", [value], [wanted], signature=signature)
                self._nodes[copy.id] = copy
        return wanted
