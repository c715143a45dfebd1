"""Addresses of values: texts by which a value is found again in another file of the same architecture.

A value of the file has its name there. What a rewrite inserted is addressed by the value whose computation it became,
the rule, and its place in the replacement, whichever step that was: leaving out another step changes no address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.hashing import digest
from graph_rewrite.rewriting.sites import Site

_MARK = "~"


@dataclass(frozen=True, slots=True)
class Insertion:
    """The nodes that a rewrite inserted at one site, in their order."""

    site: Site
    nodes: tuple[int, ...]


class Addresses:
    """The addresses of the values of a graph, carried along from rewrite to rewrite."""

    def __init__(self, graph: Graph) -> None:
        self._known = {value: name for value, name in graph.names.items() if name}
        self._applied: Counter[tuple[str, str]] = Counter()

    def copy(self) -> Addresses:
        """Return the same addresses, to be carried along on another way."""
        other = copy(self)
        other._known, other._applied = self._known.copy(), self._applied.copy()
        return other

    def of(self, value: int) -> str:
        """Return the address of a value; empty where the file gives it no name."""
        return self._known.get(value, "")

    def of_all(self, values: Iterable[int]) -> tuple[str, ...]:
        """Return the addresses of values."""
        return tuple(self._known.get(value, "") for value in values)

    def where(self, value: int) -> str:
        """Return the name in the file that is nearest to a value."""
        return self.of(value).partition(_MARK)[0]

    def follow(self, after: Graph, insertions: Sequence[Insertion]) -> None:
        """Give addresses to what a rewrite inserted."""
        for insertion in insertions:
            root = self.of(insertion.site.match.root_values[0])
            rule = insertion.site.rule.name
            number = self._applied[root, rule]
            self._applied[root, rule] += 1
            for place, node_id in enumerate(insertion.nodes):
                for index, value in enumerate(after.nodes[node_id].outputs):
                    if value not in self._known:
                        mark = digest(root, rule, number, place, index)[:10]
                        self._known[value] = f"{root.partition(_MARK)[0]}{_MARK}{mark}"
