"""The rules that match a graph, counted: nodes that are alike are matched once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from graph_rewrite.inspection.alike_nodes import AlikeNodes
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.rewriting.listing import is_safe
from graph_rewrite.rewriting.sites import Site, makes_cycle
from graph_rewrite.system.deadline import check_time

ROUNDS = 10
"""Rounds of refinement. Where a rule looks further than that, the nodes are matched one by one."""


@dataclass(frozen=True)
class RuleSites:
    """A rule that matches: at `sites` places, of which `classes` are different from each other."""

    rule: str
    sites: int
    classes: int


def rule_sites(graph: Graph, enumerator: Enumerator, rounds: int = ROUNDS) -> list[RuleSites]:
    """Return the rules that match a graph, those with most sites first: the numbers of sites and classes among the
    candidates of the enumerator.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    counted = _Counted(graph, enumerator)
    nodes = AlikeNodes(graph, rounds)
    for group in nodes.groups():
        check_time()
        if counted.holds(group, nodes, across_hubs=False):
            counted.add(group[0], len(group))
            continue
        for alike in nodes.split(group):
            check_time()
            if counted.holds(alike, nodes, across_hubs=True):
                counted.add(alike[0], len(alike))
                continue
            for node in alike:
                counted.add(node, 1)
    return counted.result()


class _Counted:
    """Counts of the sites that are listed."""

    def __init__(self, graph: Graph, enumerator: Enumerator) -> None:
        self._graph, self._enumerator = graph, enumerator
        self._found: dict[int, tuple[tuple[Site, ...], frozenset[int]]] = {}
        self._sites = Counter[int]()
        self._classes: dict[int, set[str]] = {}

    def add(self, node: Node, times: int) -> None:
        """Count the sites at a node, as those of so many nodes that are alike."""
        for site in self._listed(node):
            self._sites[site.rule_index] += times
            self._classes.setdefault(site.rule_index, set()).add(site.class_key)

    def holds(self, alike: Sequence[Node], nodes: AlikeNodes, *, across_hubs: bool) -> bool:
        """Tell whether all nodes of a group have the sites of the first: what was read to find these, and to tell which
        are listed, is the same for all."""
        node = alike[0]
        if len(alike) == 1:
            return True
        near = nodes.near(node, across_hubs=across_hubs)
        sites, reads = self._at(node)
        beside = [self._at(other)[1] for site in sites for other in site.removed if other is not node]
        return (
            all(is_safe(self._graph, site) for site in sites if site.several_roots)
            and reads <= near
            and all(further <= near for further in beside)
        )

    def result(self) -> list[RuleSites]:
        rules = self._enumerator.rules
        counts = Counter({number: self._sites[number] for number in sorted(self._sites)})
        return [RuleSites(rules[n].name, count, len(self._classes[n])) for n, count in counts.most_common()]

    def _at(self, node: Node) -> tuple[tuple[Site, ...], frozenset[int]]:
        if node.id not in self._found:
            self._found[node.id] = self._enumerator.sites_at(self._graph, node)
        return self._found[node.id]

    def _listed(self, node: Node) -> Iterator[Site]:
        """Yield the sites at a node without those that make a cycle, or that lead to the graph of an earlier one."""
        graph = self._graph
        for number, site in enumerate(self._at(node)[0]):
            if site.several_roots and not is_safe(graph, site) and makes_cycle(graph, site):
                continue
            position = site.rule_index, graph.ranks[node.id], node.id, number
            if not any(
                twin.key == site.key and (twin.rule_index, graph.ranks[other.id], other.id, k) < position
                for other in site.removed
                for k, twin in enumerate(self._at(other)[0])
            ):
                yield site
