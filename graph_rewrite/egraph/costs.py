"""What e-nodes cost, e-graphs as arrays to extract from, and least tree costs that follow a growing e-graph."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from graph_rewrite.egraph.convert import to_graph
from graph_rewrite.egraph.core import LIVE, EGraph
from graph_rewrite.egraph.extract import CostedEGraph, Extraction, Method, extract
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.latency.graph_operators import is_shape_like, spec_of

NodeCost = Callable[[EGraph, int], float]
"""What an e-node costs alone, by e-graph and e-node; asked for applications that depend on more than constants."""


def unit_cost(egraph: EGraph, node: int) -> float:
    """1 for every operator: the size of the graph."""
    return 1.0


def measured_cost(price: Callable[[OperatorSpec], float]) -> NodeCost:
    """The cost model of TASO: what `price` says an operator takes alone (for instance
    `lambda spec: meter.cost(spec).ms` with an `OperatorCostMeter`). What cannot be timed alone costs nothing."""

    specs: dict[tuple[Any, ...], OperatorSpec | None] = {}

    def cost(egraph: EGraph, node: int) -> float:
        operator = egraph.operators.entries[egraph.node_op[node]]
        args, outputs = egraph.args(node), egraph.outputs_of(node)
        types = [None if cls < 0 else egraph.types[cls] for cls in (*args, *outputs)]
        constants = {i: egraph.constants[cls] for i, cls in enumerate(args) if cls in egraph.constants}
        shown = tuple((i, c.digest if is_shape_like(c) else "") for i, c in constants.items())
        key = (operator.domain, operator.op, operator.signature, egraph.opset, *types, *shown)
        if operator.unique:
            key = (*key, operator.number)
        if key not in specs:
            untyped = any(t is None and cls >= 0 for t, cls in zip(types, (*args, *outputs), strict=True))
            specs[key] = None if operator.opaque or untyped else spec_of(
                operator.op, operator.domain, operator.attrs, types[: len(args)], types[len(args) :], constants,
                egraph.opset,
            )  # fmt: skip
        spec = specs[key]
        return 0.0 if spec is None else price(spec)

    return cost


def cost_of(egraph: EGraph, node: int, cost: NodeCost) -> float:
    """What an e-node adds to a graph: leaves and what depends on constants alone cost nothing at run time."""
    if egraph.operator(node).kind != "operator":
        return 0.0
    args = egraph.args(node)
    if args and all(arg < 0 or arg in egraph.constants for arg in args) and not egraph.operator(node).unique:
        return 0.0
    return cost(egraph, node)


@dataclass(frozen=True, slots=True)
class Costed:
    """An e-graph's part that its roots can reach, as arrays, with the e-nodes and classes that stand behind them."""

    graph: CostedEGraph
    nodes: list[int]
    classes: list[int]

    def choice(self, extraction: Extraction) -> dict[int, int]:
        """An extraction's choice by the e-graph's own numbers."""
        return {self.classes[cls]: self.nodes[node] for cls, node in extraction.choice.items()}


def costed(egraph: EGraph, cost: NodeCost = unit_cost) -> Costed:
    """The classes below the roots, with what each of their members costs. A class known before run time has its
    constant as its only member.

    Raises:
        ValueError: the e-graph has no roots.
    """
    if not egraph.roots:
        raise ValueError("this e-graph has no roots: nothing is to be extracted")
    place: dict[int, int] = {}
    classes: list[int] = []
    nodes: list[int] = []
    members: list[list[int]] = []

    def number(cls: int) -> int:
        if cls not in place:
            place[cls] = len(classes)
            classes.append(cls)
        return place[cls]

    roots = tuple(dict.fromkeys(map(number, egraph.canonical_roots())))
    children: list[tuple[int, ...]] = []
    for cls in classes:  # grows as operands are found
        own = egraph.members(cls)
        if cls in egraph.constants:
            own = [node for node in own if egraph.operator(node).kind == "constant"][:1]
        members.append(list(range(len(nodes), len(nodes) + len(own))))
        nodes.extend(own)
        children.extend(tuple(number(arg) for arg in egraph.args(node) if arg >= 0) for node in own)
    costs = [cost_of(egraph, node, cost) for node in nodes]
    return Costed(CostedEGraph(costs, children, members, roots), nodes, classes)


def extract_graph(
    egraph: EGraph, cost: NodeCost = unit_cost, method: Method = "dag", *, time_limit: float = 60.0
) -> tuple[Graph, Extraction]:
    """The cheapest graph that `method` finds in an e-graph made from a graph, and how it was found."""
    arrays = costed(egraph, cost)
    extraction = extract(arrays.graph, method, time_limit=time_limit)
    return to_graph(egraph, arrays.choice(extraction)), extraction


class TreeCostTracker:
    """Least tree costs of all classes of one e-graph, brought up to date after each application in time proportional to
    what changed: e-nodes are only added, so costs only fall. Where an e-node that had the least cost was taken out,
    all is computed anew."""

    def __init__(self, egraph: EGraph, cost: NodeCost = unit_cost) -> None:
        self.egraph, self._cost = egraph, cost
        self._costs: dict[int, float] = {}
        self._best: dict[int, int] = {}
        self._seen = 0
        self.update()

    def fork(self, egraph: EGraph) -> TreeCostTracker:
        """A tracker for a fork of the e-graph."""
        other = TreeCostTracker.__new__(TreeCostTracker)
        other.egraph, other._cost, other._seen = egraph, self._cost, self._seen
        other._costs, other._best = self._costs.copy(), self._best.copy()
        return other

    def cost(self, cls: int) -> float:
        """The least tree cost of a class; infinite where it cannot be computed."""
        return self._costs.get(self.egraph.find(cls), float("inf"))

    def root_cost(self) -> float:
        """The sum over the roots, each class once."""
        return sum(self.cost(cls) for cls in dict.fromkeys(self.egraph.canonical_roots()))

    def choice(self) -> dict[int, int]:
        """The e-node of least cost per class."""
        return {cls: node for cls, node in self._best.items() if self.egraph.find(cls) == cls}

    def update(self) -> None:
        """Follow what the e-graph has logged since the last time."""
        egraph = self.egraph
        if any(egraph.node_state[node] != LIVE and self._stands_alone(node) for node in self._best.values()):
            self._costs, self._best, self._seen = {}, {}, 0
        changed = dict.fromkeys(egraph.find(cls) for cls in egraph.log[self._seen :])
        self._seen = len(egraph.log)
        heap = [(0.0, cls) for cls in changed]
        # A changed class may have become a constant, which makes its readers cheaper even at the same cost.
        heap.extend((0.0, egraph.find(node)) for cls in changed for node in egraph.parents(cls))
        queued = {cls for _, cls in heap}
        heapq.heapify(heap)
        while heap:
            _, cls = heapq.heappop(heap)
            queued.discard(cls)
            if self._improve(cls):
                for node in egraph.parents(cls):
                    reader = egraph.find(node)
                    if reader not in queued:
                        queued.add(reader)
                        heapq.heappush(heap, (self._costs[cls], reader))

    def _stands_alone(self, node: int) -> bool:
        """Whether a node that is no longer live has no equal one in its place."""
        egraph = self.egraph
        other = egraph.find_equal(node)
        return other is None or egraph.node_state[other] != LIVE

    def _improve(self, cls: int) -> bool:
        egraph, improved = self.egraph, False
        if cls in egraph.constants:
            members = [node for node in egraph.members(cls) if egraph.operator(node).kind == "constant"]
        else:
            members = egraph.members(cls)
        for node in members:
            below = 0.0
            for arg in egraph.args(node):
                if arg >= 0:
                    below += self._costs.get(arg, float("inf"))
            if below == float("inf"):
                continue
            total = below + cost_of(egraph, node, self._cost)
            if total < self._costs.get(cls, float("inf")):
                self._costs[cls], self._best[cls] = total, node
                improved = True
        return improved
