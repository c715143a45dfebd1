"""The cost function of Hartmann et al. that knows of shared subgraphs, as published.

Hartmann, He, Yoneki, "Optimizing Tensor Computation Graphs with Equality Saturation and Monte Carlo Tree Search",
PACT'24, section 4.2, algorithm 2. An e-class keeps the history of its best e-node: which classes contributed how much
to its cost. An operand then costs (1) nothing where the history so far has it, (2) its cost less the largest
contribution that both histories have, (3) its full cost otherwise. Where operands share more than one chain, the
largest common contribution is less than what they share: the estimate is too high, as the paper shows in figure 9.

Classes are visited in the order of their tree costs, and again while costs change, as egg's extractor does, but at most
8 times. A class keeps the least cost it ever had, so where an operand finds something better for itself that shares
less, the estimate can also be too low.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from graph_rewrite.egraph.extract.costed import CostedEGraph
from graph_rewrite.egraph.extract.tree import TreeCosts

_MOST_PASSES = 8
_NOTHING = (np.empty(0, dtype=np.int32), np.empty(0))

History = tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
"""Classes, and what each contributed. Classes that cost nothing are left out: they never change a sum."""


class SharedCosts:
    """Costs, histories and choices per class, to be improved by passes over all classes."""

    def __init__(self, graph: CostedEGraph, tree: TreeCosts) -> None:
        self.graph, self._order = graph, tree.order
        count = len(graph.classes)
        self.costs, self.choice = [float("inf")] * count, [-1] * count
        self._history: list[History] = [_NOTHING] * count
        # Contributions in the history of the e-node at hand; -1 where a class is not in it.
        self._current = np.full(count, -1.0)

    def run(self) -> None:
        """Passes until nothing changes. A class is looked at again only where an operand has changed."""
        readers = self.graph.readers()
        dirty = set(self._order)
        for _ in range(_MOST_PASSES):
            if not dirty:
                return
            todo, dirty = dirty, set()
            for cls in self._order:
                if cls in todo or cls in dirty:
                    dirty.discard(cls)
                    if self._visit(cls):
                        dirty.update(self.graph.node_class[node] for node in readers[cls])

    def _visit(self, cls: int) -> bool:
        """Evaluate a class's e-nodes; whether its cost or its choice changed."""
        best, best_cost, best_history = -1, float("inf"), _NOTHING
        for least, node in sorted((self._least(node), node) for node in self.graph.classes[cls]):
            if least >= best_cost or least == float("inf"):
                break
            if cls not in self.graph.children[node]:
                cost, history = self._cost(node, best_cost)
                if cost < best_cost:
                    best, best_cost, best_history = node, cost, history
        if best < 0:
            return False
        # As in egg, a class keeps its e-node unless another is cheaper than it ever was; its history is always new.
        cheaper = best_cost < self.costs[cls]
        if cheaper:
            self.costs[cls], self.choice[cls] = best_cost, best
        self._history[cls] = best_history
        return cheaper

    def _least(self, node: int) -> float:
        """Return a lower bound of an e-node's cost: its first operand that costs anything is paid for in full.

        It is infinite where an operand has no cost yet.
        """
        first = 0.0
        for child in self.graph.children[node]:
            if self.costs[child] == float("inf"):
                return float("inf")
            first = first or self.costs[child]
        return self.graph.costs[node] + first

    def _cost(self, node: int, limit: float = float("inf")) -> tuple[float, History]:
        """The cost of an e-node and its history; something not below `limit`, and no history, where it is not."""
        current, total = self._current, self.graph.costs[node]
        keys: list[np.ndarray[Any, Any]] = []
        for child in self.graph.children[node]:
            cost = self.costs[child]
            if cost == 0 or current[child] >= 0:
                continue
            known, values = self._history[child]
            if len(known):
                present = current[known]
                shared = present >= 0
                largest = float(values[shared].max()) if shared.any() else 0.0
                fresh = known[~shared]
                current[fresh] = values[~shared]
                keys.append(fresh)
                cost = max(cost - largest, 0.0)
            current[child] = cost
            keys.append(np.array([child], dtype=np.int32))
            total += cost
            if total >= limit:
                break
        if not keys:
            return total, _NOTHING
        joined = np.concatenate(keys)
        history = (joined, current[joined]) if total < limit else _NOTHING
        current[joined] = -1.0
        return total, history


def shared_choice(graph: CostedEGraph, tree: TreeCosts) -> tuple[dict[int, int], float]:
    """The choice by the published cost function, and its estimate of the roots' cost.

    The estimate does not grow with depth everywhere, so the choice can have a cycle: classes on one then take the
    e-node of the least tree cost.
    """
    shared = SharedCosts(graph, tree)
    shared.run()
    choice = {cls: shared.choice[cls] if shared.choice[cls] >= 0 else tree.choice[cls] for cls in tree.order}
    while (cycle := graph.cycle(choice)) is not None:
        for cls in cycle:
            choice[cls] = tree.choice[cls]
    return choice, _estimate(graph, shared)


def _estimate(graph: CostedEGraph, shared: SharedCosts) -> float:
    """The cost of the roots: that of an operator of no cost which reads them all."""
    roots = tuple(dict.fromkeys(graph.roots))
    if len(roots) == 1:
        return shared.costs[roots[0]]
    top = CostedEGraph([*graph.costs, 0.0], [*graph.children, roots], [*graph.classes, [len(graph.costs)]], roots)
    shared.graph = top
    return shared._cost(len(graph.costs))[0]
