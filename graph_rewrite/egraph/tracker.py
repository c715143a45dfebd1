"""Costs in which shared subgraphs count once, for a search that extracts after every step.

The greedy extraction of extraction-gym's `faster-greedy-dag`, made incremental: a class keeps which classes its choice
needs and what each adds, so an operand that is there already costs nothing. After an application only classes that
changed, and those above them that gain by it, are looked at again.
"""

from __future__ import annotations

import heapq
import math

from graph_rewrite.egraph.core import LIVE, EGraph
from graph_rewrite.egraph.costs import NodeCost, cost_of, unit_cost

Needs = dict[int, float]
"""Classes that a choice needs, with the cost of the chosen e-node of each. Shared between forks: never changed."""


class SharedCostTracker:
    """A choice of e-nodes for all classes of one e-graph, brought up to date by `update()` in time proportional to what
    changed; costs of classes only fall. Where a chosen e-node was taken out, all is computed anew.

    The e-graph must be kept acyclic (`cycles="filter"`, the default of `apply_rule`), as then every choice is a graph.

    Args:
        egraph: what to follow.
        cost: of an e-node alone; asked once per e-node and fork.
    """

    def __init__(self, egraph: EGraph, cost: NodeCost = unit_cost) -> None:
        self.egraph, self._cost = egraph, cost
        self._known: dict[int, float] = {}
        self._costs: dict[int, float] = {}
        self._needs: dict[int, Needs] = {}
        self._best: dict[int, int] = {}
        self._seen = 0
        self.update()

    def fork(self, egraph: EGraph) -> SharedCostTracker:
        """A tracker for a fork of the e-graph."""
        other = SharedCostTracker.__new__(SharedCostTracker)
        other.egraph, other._cost, other._seen = egraph, self._cost, self._seen
        other._known, other._costs = self._known.copy(), self._costs.copy()
        other._needs, other._best = self._needs.copy(), self._best.copy()
        return other

    def choice(self) -> dict[int, int]:
        """The chosen e-node per class."""
        return {cls: node for cls, node in self._best.items() if self.egraph.find(cls) == cls}

    def root_cost(self) -> float:
        """The true cost of the chosen graph: each e-node that the roots need, once. Infinite where a root has none."""
        egraph, best = self.egraph, self._best
        stack = list(dict.fromkeys(egraph.canonical_roots()))
        seen, total = set(stack), 0.0
        while stack:
            cls = stack.pop()
            node = best.get(cls)
            if node is None:
                return math.inf
            total += self._alone(node)
            if cls in egraph.constants:
                continue
            for arg in egraph.args(node):
                if arg >= 0 and arg not in seen:
                    seen.add(arg)
                    stack.append(arg)
        return total

    def update(self) -> None:
        """Follow what the e-graph has logged since the last time."""
        egraph = self.egraph
        if any(egraph.node_state[node] != LIVE and self._stands_alone(node) for node in self._best.values()):
            self._known, self._costs, self._needs, self._best, self._seen = {}, {}, {}, {}, 0
        changed = dict.fromkeys(egraph.find(cls) for cls in egraph.log[self._seen :])
        self._seen = len(egraph.log)
        # A changed class may have become a constant, which makes its readers cheaper.
        todo = {*changed, *(egraph.find(node) for cls in changed for node in egraph.parents(cls))}
        for node in [node for cls in todo for node in egraph.members(cls)]:
            self._known.pop(node, None)
        heap = [(self._costs.get(cls, 0.0), cls) for cls in todo]
        heapq.heapify(heap)
        while heap:
            _, cls = heapq.heappop(heap)
            if cls not in todo:
                continue
            todo.discard(cls)
            if self._improve(cls):
                for node in egraph.parents(cls):
                    reader = egraph.find(node)
                    if reader not in todo:
                        todo.add(reader)
                        heapq.heappush(heap, (self._costs[cls], reader))

    def _stands_alone(self, node: int) -> bool:
        """Whether a node that is no longer live has no equal one in its place."""
        other = self.egraph.find_equal(node)
        return other is None or self.egraph.node_state[other] != LIVE

    def _alone(self, node: int) -> float:
        cost = self._known.get(node)
        if cost is None:
            cost = self._known[node] = cost_of(self.egraph, node, self._cost)
        return cost

    def _improve(self, cls: int) -> bool:
        """Choose again for a class; whether it became cheaper."""
        egraph, improved = self.egraph, False
        if cls in egraph.constants:
            members = [node for node in egraph.members(cls) if egraph.operator(node).kind == "constant"]
        else:
            members = egraph.members(cls)
        for node in members:
            below = dict.fromkeys(arg for arg in egraph.args(node) if arg >= 0)
            costs = [self._costs.get(arg, math.inf) for arg in below]
            least, limit = max(costs, default=0.0), self._costs.get(cls, math.inf)
            if least == math.inf or least >= limit:
                continue
            own = self._alone(node)
            if own + least >= limit:
                continue
            needs: Needs = {}
            for arg in below:
                needs.update(self._needs[arg])
            needs[cls] = own
            total = math.fsum(needs.values())
            if total < limit:
                self._costs[cls], self._best[cls], self._needs[cls] = total, node, needs
                improved = True
        return improved
