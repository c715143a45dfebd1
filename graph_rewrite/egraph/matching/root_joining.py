"""Patterns with several roots: the other roots are looked for near those that are matched.

Roots are joined over the e-classes that they share: from a bound class down to its readers, never as a cross product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from graph_rewrite.egraph.matching.changes import root_nodes
from graph_rewrite.egraph.matching.tree_matching import TreeMatcher
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.rewriting.patterns import Pattern, PatternNode, PatternOutput, Var


@dataclass(slots=True)
class FoundMatch:
    """A match as data: a class per variable (None, or a tuple for `Values`), an e-node per pattern node."""

    variables: Mapping[str, Any]
    nodes: Mapping[PatternNode, int]
    attrs: Mapping[str, Any]


class RootJoiner(TreeMatcher):
    """Finds the roots of a pattern that are not matched yet, and gives the match once all are."""

    def __init__(self, egraph: EGraph, pattern: Pattern, symmetric: bool = False) -> None:
        super().__init__(egraph, pattern)
        self._symmetric = symmetric

    def _join(self, first: PatternNode, node: int) -> Iterator[FoundMatch]:
        others = [root for root in root_nodes(self._pattern) if root is not first]
        if self._egraph.find(node) in self._egraph.constants:
            return
        for _ in self._enter(first, node, None):
            yield from self._roots(others)

    def _roots(self, missing: list[PatternNode]) -> Iterator[FoundMatch]:
        missing = [root for root in missing if root not in self._nodes]
        if not missing:
            if self._ordered() and self._typed():
                yield FoundMatch(dict(self._variables), dict(self._nodes), dict(self._attrs))
            return
        for k, goal in enumerate(missing):
            path = self._shared_path(goal)
            if path is None and k + 1 < len(missing):
                continue
            rest = missing[:k] + missing[k + 1 :]
            taken = set(self._nodes.values())
            for node in self._neighbours(goal) if path is None else self._siblings(*path):
                if node in taken or self._egraph.find(node) in self._egraph.constants:
                    continue
                for _ in self._enter(goal, node, None):
                    yield from self._roots(rest)
            return

    def _ordered(self) -> bool:
        """Interchangeable roots are matched in one order only."""
        if not self._symmetric:
            return True
        nodes = [self._nodes[root] for root in root_nodes(self._pattern)]
        return nodes == sorted(nodes)

    def _typed(self) -> bool:
        egraph = self._egraph
        types = egraph.types
        for bound in self._variables.values():
            for cls in bound if isinstance(bound, tuple) else () if bound is None else (bound,):
                if types[cls] is None:
                    return False
        for node in self._nodes.values():
            for cls in egraph.outputs_of(node):
                if types[cls] is None:
                    return False
        return True

    def _shared_path(self, goal: PatternNode) -> tuple[int, list[PatternNode]] | None:
        """A bound class that `goal` is computed from, and the pattern nodes from there down to goal. Of several the
        one with the fewest readers."""
        queue: list[tuple[PatternNode, list[PatternNode]]] = [(goal, [goal])]
        best: tuple[int, list[PatternNode]] | None = None
        least = 0
        while queue:
            node, path = queue.pop(0)
            for source in node.inputs:
                cls: Any = None
                if isinstance(source, Var):
                    cls = self._variables.get(source.name)
                elif isinstance(source, PatternOutput):
                    if source.node in self._nodes:
                        cls = self._egraph.outputs_of(self._nodes[source.node])[source.index]
                    else:
                        queue.append((source.node, [source.node, *path]))
                if isinstance(cls, int) and not self._is_scalar(cls):
                    readers = self._egraph.reader_count(cls)
                    if best is None or readers < least:
                        best, least = (cls, path), readers
        return best

    def _is_scalar(self, cls: int) -> bool:
        """Return whether a class is a constant of one element: sharing one does not connect two operators."""
        type = self._egraph.type_of(cls)
        return cls in self._egraph.constants and type is not None and type.size == 1

    def _siblings(self, cls: int, steps: list[PatternNode]) -> list[int]:
        """Applications that may be the last of `steps`, reached downward from a class."""
        egraph = self._egraph
        frontier, nodes = [cls], list[int]()
        for step in steps:
            found: set[int] = set()
            for current in frontier:
                for node in egraph.parents(current):
                    operator = egraph.operator(node)
                    if operator.op in step.operators and operator.domain == step.domain and not operator.opaque:
                        found.add(node)
            nodes = sorted(found)
            frontier = list(dict.fromkeys(output for node in nodes for output in egraph.outputs_of(node)))
        return nodes

    def _neighbours(self, goal: PatternNode) -> list[int]:
        """Applications that may be `goal`, which shares nothing with the match, and meet it: one operator reads results
        of both, or one computes operands of both (as in the graph matcher)."""
        egraph = self._egraph
        roots = [self._nodes[root] for root in root_nodes(self._pattern) if root in self._nodes]
        below = [cls for node in roots for cls in egraph.outputs_of(node)]
        near = {arg for cls in below for node in egraph.parents(cls) for arg in egraph.args(node) if arg >= 0}
        found = {inner for cls in near for inner in self._applications(cls)}
        bound = [v for v in self._variables.values() if isinstance(v, int) and v not in egraph.constants]
        beside = {output for cls in bound for node in self._applications(cls) for output in egraph.outputs_of(node)}
        found |= {node for cls in beside for node in egraph.parents(cls)}
        return sorted(n for n in found if egraph.operator(n).op in goal.operators and self._fits(goal, n))

    def _applications(self, cls: int) -> list[int]:
        """Applications that compute a class, alone or beside other outputs."""
        egraph, found = self._egraph, list[int]()
        for node in egraph.members(cls):
            if egraph.operator(node).kind == "operator":
                found.append(node)
            elif egraph.operator(node).kind == "output":
                found.extend(egraph.members(egraph.args(node)[0]))
        return found
