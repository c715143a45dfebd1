"""Extraction by the true cost of the graph: start from the best greedy choice, then improve it class by class.

A solution counts how often each class is used, so that the exact effect of exchanging one e-node is what the new one
brings in less what nothing uses any more (as maximum fanout-free cones are used in logic rewriting: Mishchenko et al.,
"DAG-aware AIG rewriting", DAC'06). Classes outside the solution hold the e-node that would cost least in addition to
it. Exchanges that only pay together are tried around a class that several of them would share.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping, Sequence

from graph_rewrite.egraph.extract.costed import CostedEGraph, components
from graph_rewrite.egraph.extract.shared import shared_choice
from graph_rewrite.egraph.extract.tree import TreeCosts

_RELATIVE = 1e-12
"""Gains below this share of the cost are rounding."""


def dag_choice(graph: CostedEGraph, tree: TreeCosts, time_limit: float = 20.0) -> dict[int, int]:
    """A choice at least as good as those by tree cost and by the shared cost function, improved while that pays and
    time is left (seconds, for the improvement alone)."""
    starts = [tree.chosen(), shared_choice(graph, tree)[0]]
    starts.append(_amortised(graph, graph.restricted(starts[1])))
    first = min(starts, key=graph.dag_cost)
    improved = _Solution(graph, first, tree).improve(time.perf_counter() + time_limit)
    return improved if graph.dag_cost(improved) < graph.dag_cost(first) else first


def _amortised(graph: CostedEGraph, choice: Mapping[int, int]) -> dict[int, int]:
    """Least tree costs once more, where a class that several e-nodes of a solution read costs each only its share."""
    uses = [0] * len(graph.classes)
    for node in choice.values():
        for child in set(graph.children[node]):
            uses[child] += 1
    divided = [cost / max(1, uses[cls]) for cost, cls in zip(graph.costs, graph.node_class, strict=True)]
    return _cheapest(graph, divided, {})


def _cheapest(graph: CostedEGraph, costs: Sequence[float], free: Mapping[int, int]) -> dict[int, int]:
    """The choice of least tree costs where the classes in `free` cost nothing and keep their e-nodes."""
    readers = graph.readers()
    missing = [len(set(kids)) for kids in graph.children]
    chosen, settled = dict(free), dict.fromkeys(free, 0.0)
    heap: list[tuple[float, int]] = []

    def settle(cls: int) -> None:
        for reader in readers[cls]:
            missing[reader] -= 1
            owner = graph.node_class[reader]
            if missing[reader] == 0 and owner >= 0 and owner not in settled:
                kids = set(graph.children[reader])
                heapq.heappush(heap, (costs[reader] + sum(settled[child] for child in kids), reader))

    for node, count in enumerate(missing):
        if count == 0 and graph.node_class[node] >= 0 and graph.node_class[node] not in settled:
            heapq.heappush(heap, (costs[node], node))
    for cls in free:
        settle(cls)
    while heap:
        cost, node = heapq.heappop(heap)
        cls = graph.node_class[node]
        if cls not in settled:
            chosen[cls], settled[cls] = node, cost
            settle(cls)
    return chosen


class _Solution:
    """A choice for every class that can be computed, without cycles, and how often the roots' subgraph uses each."""

    def __init__(self, graph: CostedEGraph, choice: Mapping[int, int], tree: TreeCosts) -> None:
        self.graph = graph
        self._kids = [tuple(dict.fromkeys(kids)) for kids in graph.children]
        self._uses = [0] * len(graph.classes)
        self._component = components(graph, range(len(graph.classes)))
        sizes: dict[int, int] = {}
        for name in self._component.values():
            sizes[name] = sizes.get(name, 0) + 1
        self._cyclic = [sizes[self._component[cls]] > 1 for cls in range(len(graph.classes))]
        # What the roots need reads only such classes, and tree choices alone make no cycle.
        self._choice = {**tree.chosen(), **graph.restricted(choice)}
        self.cost = 0.0
        for root in dict.fromkeys(graph.roots):
            self._use(root)
        self._readers = graph.readers()

    def improve(self, deadline: float) -> dict[int, int]:
        """Exchange e-nodes until no exchange pays."""
        self._deadline = deadline
        while True:
            before = self.cost
            self._refresh()
            while self._exchange_each() and not self._late():
                pass
            if not self._late():
                self._exchange_around_shared()
            if self._late() or not self._gains(before, self.cost):
                return self.graph.restricted(self._choice)

    def _late(self) -> bool:
        return time.perf_counter() > self._deadline

    def _gains(self, before: float, after: float) -> bool:
        return after < before - _RELATIVE * max(1.0, before)

    def _refresh(self) -> None:
        """Let unused classes hold the e-node that would cost least in addition to the solution."""
        used = {cls: node for cls, node in self._choice.items() if self._uses[cls]}
        self._choice = _cheapest(self.graph, self.graph.costs, used)

    def _exchange_each(self) -> bool:
        improved = False
        for cls in [cls for cls, uses in enumerate(self._uses) if uses and len(self.graph.classes[cls]) > 1]:
            if self._uses[cls] and not self._late():
                improved = self._exchange(cls) or improved
        return improved

    def _exchange(self, cls: int) -> bool:
        """Give a used class the e-node with which the whole costs least."""
        improved = False
        for node in self.graph.classes[cls]:
            before, old = self.cost, self._choice[cls]
            if node == old or not self._can_take(cls, node):
                continue
            self._switch(cls, node)
            if self._gains(before, self.cost):
                improved = True
            else:
                self._switch(cls, old)
                self.cost = before
        return improved

    def _exchange_around_shared(self) -> None:
        """Take an unused class as given, exchange what may read it, and keep that if it pays for the class."""
        for cls in range(len(self.graph.classes)):
            if self._uses[cls] or cls not in self._choice or self._late():
                continue
            readers = [n for n in self._readers[cls] if self._uses[self.graph.node_class[n]]]
            if len({self.graph.node_class[node] for node in readers}) > 1:
                self._try_around(cls, readers)

    def _try_around(self, cls: int, readers: list[int]) -> None:
        before, journal = self.cost, list[tuple[int, int]]()
        self._use(cls)
        for node in readers:
            owner = self.graph.node_class[node]
            cost, old = self.cost, self._choice[owner]
            if node == old or not self._uses[owner] or not self._can_take(owner, node):
                continue
            self._switch(owner, node)
            if self._gains(cost, self.cost):
                journal.append((owner, old))
            else:
                self._switch(owner, old)
                self.cost = cost
        self._drop(cls)
        if not self._gains(before, self.cost):
            for owner, old in reversed(journal):
                self._switch(owner, old)
            self.cost = before

    def _can_take(self, cls: int, node: int) -> bool:
        """Return whether an e-node's operands can be computed without the class itself."""
        kids = self._kids[node]
        if any(child not in self._choice or child == cls for child in kids):
            return False
        if not self._cyclic[cls]:
            return True
        component = self._component[cls]
        stack = [child for child in kids if self._component[child] == component]
        seen = set(stack)
        while stack:
            for child in self._kids[self._choice[stack.pop()]]:
                if child == cls:
                    return False
                if child not in seen and self._component[child] == component:
                    seen.add(child)
                    stack.append(child)
        return True

    def _switch(self, cls: int, node: int) -> None:
        """Exchange the e-node of a class, used or not; the cost follows."""
        old = self._choice[cls]
        if not self._uses[cls]:
            self._choice[cls] = node
            return
        self.cost += self.graph.costs[node] - self.graph.costs[old]
        for child in self._kids[node]:
            self._use(child)
        self._choice[cls] = node
        for child in self._kids[old]:
            self._drop(child)

    def _use(self, cls: int) -> None:
        stack = [cls]
        while stack:
            current = stack.pop()
            self._uses[current] += 1
            if self._uses[current] == 1:
                node = self._choice[current]
                self.cost += self.graph.costs[node]
                stack.extend(self._kids[node])

    def _drop(self, cls: int) -> None:
        stack = [cls]
        while stack:
            current = stack.pop()
            self._uses[current] -= 1
            if self._uses[current] == 0:
                node = self._choice[current]
                self.cost -= self.graph.costs[node]
                stack.extend(self._kids[node])
