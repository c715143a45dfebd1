"""E-matching: where a rule's pattern occurs in an e-graph.

The same patterns as the graph matcher's, indexed by operator. After the first time only anchors are tried whose pattern
may reach a class that has changed since.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from operator import or_

from graph_rewrite.egraph.matching.changes import changed_since, depth_of, root_nodes
from graph_rewrite.egraph.matching.root_joining import FoundMatch, RootJoiner
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.egraph.structure.operators import OUTPUT
from graph_rewrite.rewriting.patterns import Pattern, PatternNode, PatternOutput

MatchPosition = tuple[int, str, int, int]
"""The state of an enumeration of matches: root, operator and number of the anchor, and matches found there."""


class EMatcher(RootJoiner):
    """Finds one pattern. Good for one state of the e-graph: make a new one after a rebuild."""

    def __init__(self, egraph: EGraph, pattern: Pattern, symmetric: bool = False) -> None:
        super().__init__(egraph, pattern, symmetric)
        self.dirty: set[int] | None = None
        """Classes in which anchors are tried; all where it is None."""
        self.position: MatchPosition | None = None

    def matches(self, since: int | None = None, start: MatchPosition | None = None) -> Iterator[FoundMatch]:
        """All matches, in a fixed order.

        Args:
            since: those only that something logged from here on may have made.
            start: those only that come behind this position.
        """
        self.dirty = None if since is None else self._reachable_up(since)
        if not all(self._masks.values()):
            return
        roots = root_nodes(self._pattern)
        for root, first in enumerate(roots if self.dirty is not None else roots[:1]):
            for op, node in self._anchors(first):
                here = (root, op, node)
                if start is not None and here < start[:3]:
                    continue
                passed = start[3] if start is not None and here == start[:3] else 0
                for count, found in enumerate(self._join(first, node), start=1):
                    if count > passed:
                        self.position = (*here, count)
                        yield found

    def _anchors(self, pattern: PatternNode) -> Iterator[tuple[str, int]]:
        egraph, dirty = self._egraph, self.dirty
        inner = [
            (operand, self._wanted(goal))
            for operand, goal in enumerate(pattern.inputs)
            if isinstance(goal, PatternOutput)
        ]
        operands = [0] * len(inner) if pattern.commutative else [operand for operand, _ in inner]
        most = 2 if pattern.commutative else 1
        for op in sorted(pattern.operators):
            for node in egraph.with_operator(op, pattern.domain):
                if dirty is not None and egraph.find(node) not in dirty:
                    continue
                args = egraph.args(node) if inner else ()
                for operand, (_, mask) in zip(operands, inner, strict=True):
                    if not any(arg >= 0 and egraph.class_masks[arg] & mask for arg in args[operand : operand + most]):
                        break
                else:
                    yield op, node

    def _reachable_up(self, since: int) -> set[int]:
        """Classes from which a changed class can be reached within the depth of the pattern."""
        # An output of an application stands between it and its reader.
        steps = depth_of(self._pattern) - 1 + sum(node.outputs > 1 for node in self._pattern.nodes)
        several = any(node.outputs > 1 for node in self._pattern.nodes)
        mask = reduce(or_, self._masks.values()) | (OUTPUT if several else 0)
        return changed_since(self._egraph, since, steps, mask)


def in_order(found: list[FoundMatch]) -> list[FoundMatch]:
    """Sort the matches of one rule by their e-nodes, so that their order does not depend on how they were found:
    e-nodes get their numbers by it, and what closes a cycle goes by its number."""
    return sorted(found, key=lambda match: tuple(match.nodes.values()))
