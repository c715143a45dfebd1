"""Greedy extraction by tree cost, as egg's: an operand that is used twice is paid for twice."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from graph_rewrite.egraph.extract.costed import CostedEGraph, NoExtraction


@dataclass(frozen=True, slots=True)
class TreeCosts:
    """Per class its least tree cost and the e-node that has it (-1 where the class cannot be computed), and the
    classes in an order in which each comes behind those it is computed from."""

    costs: list[float]
    choice: list[int]
    order: list[int]

    def chosen(self) -> dict[int, int]:
        """The choice of all classes that can be computed. It has no cycle."""
        return {cls: self.choice[cls] for cls in self.order}


def tree_costs(graph: CostedEGraph, together: Callable[[list[float]], float] = sum) -> TreeCosts:
    """Least tree costs by Knuth's generalisation of Dijkstra's algorithm (1977): a class is settled when its cheapest
    e-node is known, so no class is looked at twice and costs of zero make no cycles.

    Args:
        together: what operands cost together, at least as much as each of them. With `max` in place of the sum the
            costs are lower bounds of the true cost of any graph.

    Raises:
        NoExtraction: a root cannot be computed.
    """
    readers = graph.readers()
    missing = [len(set(kids)) for kids in graph.children]
    costs, choice = [float("inf")] * len(graph.classes), [-1] * len(graph.classes)
    owners = graph.node_class
    heap = [(graph.costs[node], node) for node, count in enumerate(missing) if count == 0 and owners[node] >= 0]
    heapq.heapify(heap)
    order: list[int] = []
    while heap:
        cost, node = heapq.heappop(heap)
        cls = owners[node]
        if choice[cls] >= 0:
            continue
        costs[cls], choice[cls] = cost, node
        order.append(cls)
        for reader in readers[cls]:
            missing[reader] -= 1
            if missing[reader] == 0 and owners[reader] >= 0 and choice[owners[reader]] < 0:
                total = graph.costs[reader] + together([costs[child] for child in graph.children[reader]])
                heapq.heappush(heap, (total, reader))
    for root in graph.roots:
        if choice[root] < 0:
            raise NoExtraction(
                f"root class {root} cannot be computed: every way goes through a cycle or a class without e-nodes"
            )
    return TreeCosts(costs, choice, order)
