"""One step on its way through a graph: its candidate, what applying it inserts, and the addresses after it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy

from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.replay.addresses import Addresses, Insertion
from graph_rewrite.replay.evidence import Surroundings
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.sites import Site


class TracedGraph:
    """A graph that is rewritten step by step while every value keeps its address.

    Args:
        untouched: ids of nodes that are not to be removed.
        most_bytes: the most bytes of weights that a rewrite may leave.
    """

    def __init__(
        self,
        graph: Graph,
        rewriter: Enumerator,
        untouched: frozenset[int] = frozenset(),
        most_bytes: float = math.inf,
    ) -> None:
        self.graph, self.rewriter, self.untouched, self.most_bytes = graph, rewriter, untouched, most_bytes
        self.addresses = Addresses(graph)
        self.around = Surroundings(graph, self.addresses)
        self._rules: dict[str, Rule] = {rule.name: rule for rule in rewriter.rules}
        self._single: dict[str, Enumerator] = {}

    def fork(self) -> TracedGraph:
        """Return an independent copy, for following several ways from here."""
        twin = copy(self)
        twin.addresses = self.addresses.copy()
        twin.around = Surroundings(twin.graph, twin.addresses)
        return twin

    @property
    def rules(self) -> Mapping[str, Rule]:
        """Return the rules that the rewriter has, by name."""
        return self._rules

    def single(self, rule: str) -> Enumerator:
        """Return an enumerator of the sites of one rule.

        Raises:
            KeyError: the rewriter has no such rule.
        """
        if rule not in self._single:
            base = self.rewriter
            self._single[rule] = Enumerator([self._rules[rule]], "site", False, base.domains, base.faults)
        return self._single[rule]

    def sites(self, rule: str) -> Sequence[Site]:
        """Return the sites of a rule in the graph as it is now."""
        return self.single(rule).sites(self.graph)

    def take(self, candidate: Candidate) -> bool:
        """Apply a candidate of the graph. Return False, and change nothing, where it gives no valid graph, the same
        one, or one with too many bytes of weights."""
        insertions: list[tuple[Site, range]] = []
        try:
            after = candidate.apply(lambda site, ids: insertions.append((site, ids)))
        except InvalidRewriteError:
            return False
        if candidate.sites and not insertions:
            return False
        if self.most_bytes < math.inf and weight_bytes(after) > self.most_bytes:
            return False
        # Values keep their ids, and so their addresses, but for those that came in.
        self.addresses.follow(
            after, [Insertion(site, tuple(i for i in ids if i in after.nodes)) for site, ids in insertions]
        )
        self.graph, self.around = after, Surroundings(after, self.addresses)
        return True
