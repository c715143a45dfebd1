"""Costs in which shared subgraphs count once, for a search that extracts after every step.

The greedy extraction of extraction-gym's `faster-greedy-dag`: a class keeps which classes its choice needs, so an
operand that is there already costs nothing. What e-nodes cost alone is followed step by step; the choice itself is
machine code (`kernels.shared_choice`), and takes less than following it would.
"""

from __future__ import annotations

import numpy as np

from graph_rewrite.egraph.costs.node_costs import NodeCost, cost_of, unit_cost
from graph_rewrite.egraph.structure.arrays import arrays_of
from graph_rewrite.egraph.structure.classes import LIVE
from graph_rewrite.egraph.structure.egraph import EGraph


class SharedCostTracker:
    """A choice of e-nodes for all classes of one e-graph, brought up to date by `update()`.

    From the leaves upwards each class takes the member that costs least together with what its operands have chosen,
    the oldest of several. What results depends on the e-graph alone, not on the way to it.

    The e-graph must be kept acyclic (`cycles="filter"`, the default of `apply_rule`), as then every choice is a graph.

    Args:
        egraph: what to follow.
        cost: of an e-node alone, at least 0; asked once per e-node and fork.
    """

    def __init__(self, egraph: EGraph, cost: NodeCost = unit_cost) -> None:
        self.egraph, self._cost = egraph, cost
        self._alone = np.empty(0)
        self._seen = 0
        self._best = np.empty(0, np.int32)
        self._total = 0.0
        self.update()

    def fork(self, egraph: EGraph) -> SharedCostTracker:
        """A tracker for a fork of the e-graph."""
        other = SharedCostTracker.__new__(SharedCostTracker)
        other.__dict__.update(self.__dict__)
        other.egraph = egraph
        return other

    def choice(self) -> dict[int, int]:
        """The chosen e-node per class."""
        return {cls: int(node) for cls, node in enumerate(self._best) if node >= 0}

    def root_cost(self) -> float:
        """The true cost of the chosen graph: each e-node that the roots need, once. Infinite where a root has none."""
        return self._total

    def update(self) -> None:
        """Follow what the e-graph has logged since the last time."""
        # Imported here because numba takes half a second to import.
        from graph_rewrite.egraph.costs.kernels import shared_choice

        egraph = self.egraph
        self._price()
        arrays, order = arrays_of(egraph)
        roots = np.array(egraph.canonical_roots(), np.int32)
        self._best, self._total = shared_choice(*arrays, order, self._alone, roots)

    def _price(self) -> None:
        """Bring up to date what e-nodes cost alone."""
        egraph = self.egraph
        known = len(self._alone)
        alone = np.concatenate([self._alone, np.full(len(egraph.node_op) - known, np.nan)])
        for cls in {egraph.find(cls) for cls in egraph.log[self._seen :]}:
            if cls in egraph.constants:
                # A class that is known before run time takes its constant, and its readers may cost less.
                for node in egraph.members(cls):
                    alone[node] = 0.0 if egraph.operator(node).kind == "constant" else -1.0
                for node in egraph.readers_of(cls):
                    if not alone[node] < 0.0:
                        alone[node] = np.nan
        self._seen = len(egraph.log)
        for node in np.flatnonzero(np.isnan(alone)).tolist():
            alone[node] = cost_of(egraph, node, self._cost) if egraph.node_state[node] == LIVE else np.nan
        self._alone = alone
