"""The input of extraction: an e-graph as plain arrays with a cost per e-node, from our own e-graphs or from a file."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.errors import UserError


@dataclass(frozen=True, slots=True)
class Extraction:
    """A choice of one e-node per class that the roots need.

    `cost` is the true cost of the chosen graph, every e-node once; `estimate` what the method itself took it for.
    `gap` is the proven relative distance to the optimum, None where nothing is proven.
    """

    method: str
    cost: float
    choice: Mapping[int, int]
    acyclic: bool
    gap: float | None
    seconds: float
    estimate: float


class NoExtraction(UserError):
    """A root cannot be computed: every way to do so goes through a cycle or a class without e-nodes."""


@dataclass(slots=True)
class CostedEGraph:
    """An e-graph to extract from. E-nodes and classes are numbered from 0.

    Attributes:
        costs: per e-node, finite and not negative.
        children: per e-node the classes of its operands; one that occurs twice stands twice.
        classes: per class its e-nodes.
        roots: classes that must be computed.
        names: per e-node what it was called where it came from.

    Raises:
        ValueError: the arrays do not fit together, or a cost is negative or not finite.
    """

    costs: Sequence[float]
    children: Sequence[tuple[int, ...]]
    classes: Sequence[Sequence[int]]
    roots: tuple[int, ...]
    names: Sequence[str] = ()
    node_class: list[int] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        if len(self.costs) != len(self.children):
            raise ValueError(f"{len(self.costs)} costs for {len(self.children)} e-nodes")
        self.node_class = [-1] * len(self.costs)
        for cls, nodes in enumerate(self.classes):
            for node in nodes:
                if self.node_class[node] >= 0:
                    raise ValueError(f"e-node {node} lies in two classes")
                self.node_class[node] = cls
        for node, cost in enumerate(self.costs):
            if not (math.isfinite(cost) and cost >= 0):
                raise ValueError(f"e-node {self._name(node)} costs {cost}: costs must be finite and not negative")
        used = {*self.roots, *(child for kids in self.children for child in kids)}
        wrong = [cls for cls in used if not 0 <= cls < len(self.classes)]
        if wrong:
            raise ValueError(f"there is no class {wrong[0]}")

    def _name(self, node: int) -> str:
        return self.names[node] if self.names else str(node)

    def readers(self) -> list[list[int]]:
        """Per class the e-nodes that read it, each once."""
        found: list[list[int]] = [[] for _ in self.classes]
        for node, kids in enumerate(self.children):
            for cls in dict.fromkeys(kids):
                found[cls].append(node)
        return found

    def reachable(self, choice: Mapping[int, int]) -> list[int]:
        """Classes that the roots need under a choice."""
        seen, stack = dict.fromkeys(self.roots), list(dict.fromkeys(self.roots))
        while stack:
            for cls in self.children[choice[stack.pop()]]:
                if cls not in seen:
                    seen[cls] = None
                    stack.append(cls)
        return list(seen)

    def dag_cost(self, choice: Mapping[int, int]) -> float:
        """The true cost of a choice: each e-node that the roots need, once."""
        return math.fsum(self.costs[choice[cls]] for cls in self.reachable(choice))

    def cycle(self, choice: Mapping[int, int]) -> list[int] | None:
        """Classes of a cycle that the roots need under a choice; None where there is none."""
        finished: set[int] = set()
        for root in self.roots:
            if root in finished:
                continue
            path, positions = [(root, iter(self.children[choice[root]]))], {root: 0}
            while path:
                cls, rest = path[-1]
                below = next(rest, None)
                if below is None:
                    finished.add(cls)
                    del positions[cls]
                    path.pop()
                elif below in positions:
                    return [step[0] for step in path[positions[below] :]]
                elif below not in finished:
                    positions[below] = len(path)
                    path.append((below, iter(self.children[choice[below]])))
        return None

    def restricted(self, choice: Mapping[int, int]) -> dict[int, int]:
        """A choice without the classes that the roots do not need."""
        return {cls: choice[cls] for cls in self.reachable(choice)}


def components(graph: CostedEGraph, classes: Iterable[int]) -> dict[int, int]:
    """The strongly connected component of each class (Tarjan, without recursion): classes of different components
    cannot lie on one cycle."""
    index: dict[int, int] = {}
    low: dict[int, int] = {}
    component: dict[int, int] = {}
    stack: list[int] = []
    for start in classes:
        if start in index:
            continue
        work = [(start, _below(graph, start))]
        index[start] = low[start] = len(index)
        stack.append(start)
        while work:
            cls, rest = work[-1]
            below = rest.pop() if rest else None
            if below is not None:
                if below not in index:
                    index[below] = low[below] = len(index)
                    stack.append(below)
                    work.append((below, _below(graph, below)))
                elif below not in component:
                    low[cls] = min(low[cls], index[below])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[cls])
            if low[cls] == index[cls]:
                while True:
                    member = stack.pop()
                    component[member] = cls
                    if member == cls:
                        break
    return component


def _below(graph: CostedEGraph, cls: int) -> list[int]:
    return list({child for node in graph.classes[cls] for child in graph.children[node]})
