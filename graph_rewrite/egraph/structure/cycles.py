"""Cycle filtering: the e-graph is kept such that every choice of members is acyclic.

Yang et al., "Equality Saturation for Tensor Graph Superoptimization" (TENSAT), MLSys'21, section 5.2, the efficient
variant: one pass per application finds out which class depends on which; a match whose target would read what it
computes is skipped; a post-pass finds the cycles that arose all the same, and takes the newest e-node of each out.

TENSAT stores the set of descendants of every class. Here a topological rank per class answers most questions (what
has a lower rank cannot depend on it), and the others by a search between the two ranks; the answers are the same. A
member by which a class is grounded (computed from leaves without going through a cycle) is never taken out, so every
class keeps an acyclic choice.
"""

from __future__ import annotations

from graph_rewrite.egraph.structure.arrays import topological_ranks
from graph_rewrite.egraph.structure.classes import LIVE
from graph_rewrite.egraph.structure.egraph import EGraph

UNRANKED = -1


class Descendants:
    """The dependencies between classes, as they are when this object is made."""

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph
        self._ranks = egraph.ranks if egraph.ranks is not None else topological_ranks(egraph)
        self._known = len(self._ranks)

    def reads(self, cls: int, target: int) -> bool:
        """Return whether `cls` is computed from `target`, or is `target`."""
        egraph, ranks = self._egraph, self._ranks
        target = egraph.find(target)
        floor = ranks[target] if target < self._known else UNRANKED
        stack, visited = [egraph.find(cls)], set[int]()
        while stack:
            current = stack.pop()
            if current == target:
                return True
            if current in visited or (current < self._known and UNRANKED < ranks[current] <= floor):
                continue
            visited.add(current)
            for node in egraph.members(current):
                stack.extend(arg for arg in egraph.args(node) if arg >= 0)
        return False


def filter_cycles(egraph: EGraph) -> list[int]:
    """The post-pass: e-nodes taken out so that no cycle is left. Leaves the ranks with the e-graph."""
    ranks = topological_ranks(egraph)
    core = [cls for cls in egraph.classes() if ranks[cls] == UNRANKED]
    removed = _break(egraph, core, ranks) if core else []
    egraph.ranks = topological_ranks(egraph) if removed else ranks
    return removed


def _grounding(egraph: EGraph, core: list[int], ranks: list[int]) -> set[int]:
    """A member per class, such that these members alone make no cycle."""
    inside = set(core)
    waiting: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    chosen: dict[int, int] = {}
    ready: list[int] = []
    for cls in core:
        for node in egraph.members(cls):
            below = {arg for arg in egraph.args(node) if arg in inside}
            waiting[node] = len(below)
            for arg in below:
                readers.setdefault(arg, []).append(node)
            if not below:
                ready.append(node)
    for node in ready:
        cls = egraph.find(node)
        if cls in chosen:
            continue
        chosen[cls] = node
        for reader in readers.get(cls, ()):
            waiting[reader] -= 1
            if waiting[reader] == 0:
                ready.append(reader)
    return set(chosen.values())


def _break(egraph: EGraph, core: list[int], ranks: list[int]) -> list[int]:
    """Depth-first search over the classes of the core; an edge back to the path closes a cycle, whose newest e-node
    that grounds no class goes."""
    inside, grounding = set(core), _grounding(egraph, core, ranks)
    finished: set[int] = set()
    removed: list[int] = []
    for start in core:
        if start in finished:
            continue
        path = [_PathClass(egraph, start, inside)]
        positions = {start: 0}
        while path:
            edge = path[-1].next_edge(egraph)
            if edge is None:
                finished.add(path[-1].cls)
                del positions[path.pop().cls]
                continue
            _, below = edge
            if below in positions:
                cycle = path[positions[below] :]
                victim = max(step.node for step in cycle if step.node not in grounding)
                egraph.remove(victim)
                removed.append(victim)
                keep = next(i for i, step in enumerate(path) if step.node == victim)
                for step in path[keep + 1 :]:
                    del positions[step.cls]
                del path[keep + 1 :]
            elif below not in finished:
                positions[below] = len(path)
                path.append(_PathClass(egraph, below, inside))
    return removed


class _PathClass:
    """A class on the path, and how far its edges have been followed."""

    def __init__(self, egraph: EGraph, cls: int, inside: set[int]) -> None:
        self.cls, self.node = cls, -1
        self._edges = [
            (node, arg)
            for node in egraph.members(cls)
            for arg in dict.fromkeys(egraph.args(node))
            if arg in inside
        ]  # fmt: skip
        self._next = 0

    def next_edge(self, egraph: EGraph) -> tuple[int, int] | None:
        while self._next < len(self._edges):
            edge = self._edges[self._next]
            self._next += 1
            if egraph.node_state[edge[0]] == LIVE:
                self.node = edge[0]
                return edge
        return None
