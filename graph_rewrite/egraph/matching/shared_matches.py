"""Matches of rules in an e-graph that many others grow from, found once for all of them.

The forks of a search begin with the same log. What a rule matched at that point is kept here; in a fork only what has
changed since is matched again, as egg's successors do with their semi-naive e-matching (Zhang et al., "Better Together:
Unifying Datalog and Equality Saturation", PLDI'23). What comes out is the same as matching the fork anew.
"""

from __future__ import annotations

from graph_rewrite.egraph.matching.changes import root_nodes
from graph_rewrite.egraph.matching.ematching import EMatcher, in_order
from graph_rewrite.egraph.matching.root_joining import FoundMatch
from graph_rewrite.egraph.structure.classes import LIVE
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.rewriting.rule import Rule


class SharedMatches:
    """The matches of an e-graph, rule by rule as they are asked for.

    Args:
        egraph: not changed afterwards; forks of it that carry this as their `base` may be.
    """

    def __init__(self, egraph: EGraph) -> None:
        self._egraph = egraph.fork()
        self._egraph.dirty = {}
        self.log = len(self._egraph.log)
        self._found: dict[Rule, tuple[FoundMatch, ...] | None] = {}

    def matches(self, egraph: EGraph, rule: Rule, limit: int | None) -> list[FoundMatch] | None:
        """All matches of a rule in an e-graph that has grown from this one, in order.

        Args:
            limit: above this number of matches None is returned.
        """
        known = self._known(rule, limit)
        if known is None:
            return None
        if len(egraph.log) == self.log:
            return list(known)
        matcher = EMatcher(egraph, rule.pattern, rule.symmetric)
        first = root_nodes(rule.pattern)[0]
        several = len(root_nodes(rule.pattern)) > 1
        found: list[FoundMatch] = []
        for match in matcher.matches(self.log):
            found.append(match)
            if limit is not None and len(found) > limit:
                return None
        dirty, state, find = matcher.dirty or set(), egraph.node_state, egraph.find
        seen = {tuple(match.nodes.values()) for match in found} if several else set()
        for match in known:
            if find(match.nodes[first]) in dirty or (several and tuple(match.nodes.values()) in seen):
                continue
            if all(state[node] == LIVE for node in match.nodes.values()):
                found.append(match)
        if limit is not None and len(found) > limit:
            return None
        return in_order(found)

    def _known(self, rule: Rule, limit: int | None) -> tuple[FoundMatch, ...] | None:
        if rule not in self._found:
            before = self._egraph.base
            found = before.matches(self._egraph, rule, limit) if before is not None else None
            if found is None:
                found = []
                for match in EMatcher(self._egraph, rule.pattern, rule.symmetric).matches():
                    found.append(match)
                    if limit is not None and len(found) > limit:
                        break
            self._found[rule] = None if limit is not None and len(found) > limit else tuple(in_order(found))
        return self._found[rule]
