"""Least tree costs that follow a growing e-graph."""

from __future__ import annotations

import heapq

from graph_rewrite.egraph.costs.node_costs import NodeCost, cost_of, unit_cost
from graph_rewrite.egraph.structure.classes import LIVE
from graph_rewrite.egraph.structure.egraph import EGraph


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
        """Return whether a node that is no longer live has no equal one in its place."""
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
