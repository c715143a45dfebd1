"""The ordered list of all sites of a graph, kept up to date: the cost of a change grows with the change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import overload

from graph_rewrite.candidates import Candidate, Site, makes_cycle
from graph_rewrite.ir import Graph

Place = tuple[int, float, int, int]
"""(rule, rank of the anchor, anchor, number among the rule's matches there): the order of sites."""


@dataclass(slots=True)
class Listing:
    """Sites without duplicates, in order, and grouped into classes.

    Places hold ranks, so a listing is only good while the graph's ranks stay; `copy` and change it otherwise.
    """

    sites: list[Site] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    """Places of `sites`, ascending."""
    classes: dict[str, tuple[Site, ...]] = field(default_factory=dict)
    """Sites of a class, in order."""
    _place: dict[Site, Place] = field(default_factory=dict)
    _twins: dict[tuple[frozenset[int], str], tuple[Site, ...]] = field(default_factory=dict)
    _doubtful: dict[Site, None] = field(default_factory=dict)

    def copy(self) -> Listing:
        return Listing(
            self.sites.copy(), self.places.copy(), self.classes.copy(), self._place.copy(), self._twins.copy(),
            self._doubtful.copy(),
        )  # fmt: skip

    def add(self, graph: Graph, site: Site, number: int) -> None:
        """Add a site; of several that lead to the same graph only the first in order is listed."""
        self._place[site] = (site.rule_index, graph.ranks[site.anchor], site.anchor, number)
        before = self._twins.get(site.key, ())
        after = tuple(sorted((*before, site), key=self._place.__getitem__))
        self._twins[site.key] = after
        self._swap(graph, before, after)

    def remove(self, graph: Graph, site: Site) -> None:
        """Take a site out."""
        before = self._twins.pop(site.key)
        after = tuple(twin for twin in before if twin is not site)
        if after:
            self._twins[site.key] = after
        self._swap(graph, before, after)
        del self._place[site]

    def cyclic(self, graph: Graph) -> set[Site]:
        """Sites that would make a cycle in this graph."""
        return {site for site in self._doubtful if makes_cycle(graph, site)}

    def ordered_classes(self) -> list[tuple[Site, ...]]:
        """Classes by their first sites."""
        return sorted(self.classes.values(), key=lambda group: self._place[group[0]])

    def _swap(self, graph: Graph, before: tuple[Site, ...], after: tuple[Site, ...]) -> None:
        old, new = before[0] if before else None, after[0] if after else None
        if old is new:
            return
        if old is not None:
            index = bisect_left(self.places, self._place[old])
            del self.sites[index], self.places[index]
            self._doubtful.pop(old, None)
            rest = tuple(site for site in self.classes.pop(old.class_key) if site is not old)
            if rest:
                self.classes[old.class_key] = rest
        if new is not None:
            place = self._place[new]
            index = bisect_left(self.places, place)
            self.sites.insert(index, new)
            self.places.insert(index, place)
            if new.several_roots and not _safe(graph, new):
                self._doubtful[new] = None
            members = (*self.classes.get(new.class_key, ()), new)
            self.classes[new.class_key] = tuple(sorted(members, key=self._place.__getitem__))


def _safe(graph: Graph, site: Site) -> bool:
    """Whether all that the region reads is computed before any of the roots: then no rewrite elsewhere can make one
    root depend on another without changing what the region reads."""
    ranks, producer = graph.ranks, graph.producer
    if any(value not in producer for value in site.match.root_values):
        return False  # the site goes in the same update, after the twin whose place it took
    first = min(ranks[producer[value]] for value in site.match.root_values)
    return all(value not in producer or ranks[producer[value]] < first for value in site.region.externals())


class Candidates(Sequence[Candidate]):
    """The candidates of a graph: choices and classes made already, sites turned into candidates when asked for.

    Args:
        graph: whose candidates they are.
        head: those that come first, as they are.
        sites: those that follow, one candidate each.
    """

    def __init__(self, graph: Graph, head: Sequence[Candidate], sites: Sequence[Site] = ()) -> None:
        self._graph, self._head, self._sites = graph, head, sites
        self._made: dict[int, Candidate] = {}
        self._all: list[Candidate] | None = None

    @property
    def head(self) -> Sequence[Candidate]:
        """The candidates that come first: deployment choices and classes."""
        return self._head

    @property
    def sites(self) -> Sequence[Site]:
        """The sites of the candidates after those."""
        return self._sites

    @property
    def rules(self) -> list[str]:
        """Name of the rule or deployment choice of each."""
        return [candidate.rule for candidate in self._head] + [site.rule.name for site in self._sites]

    def __len__(self) -> int:
        return len(self._head) + len(self._sites)

    @overload
    def __getitem__(self, index: int) -> Candidate: ...

    @overload
    def __getitem__(self, index: slice) -> list[Candidate]: ...

    def __getitem__(self, index: int | slice) -> Candidate | list[Candidate]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        if 0 <= index < len(self._head):
            return self._head[index]
        made = self._made.get(index)
        if made is None:
            if not 0 <= index < len(self):
                raise IndexError(f"there are {len(self)} candidates")
            made = self._made[index] = Candidate("site", self._graph, (self._sites[index - len(self._head)],))
        return made

    def __iter__(self) -> Iterator[Candidate]:
        if self._all is None:
            self._all = [self[i] for i in range(len(self))]
        return iter(self._all)

    def __repr__(self) -> str:
        return f"<{len(self)} candidates>"


def listing_of(graph: Graph, found: Iterable[tuple[Site, ...]]) -> Listing:
    """A listing from scratch, of the sites of all anchors."""
    ranks = graph.ranks
    place = {
        site: (site.rule_index, ranks[site.anchor], site.anchor, number)
        for sites in found
        for number, site in enumerate(sites)
    }
    twins: dict[tuple[frozenset[int], str], list[Site]] = {}
    classes: dict[str, list[Site]] = {}
    for site in sorted(place, key=place.__getitem__):
        twins.setdefault(site.key, []).append(site)
    listed = [group[0] for group in twins.values()]
    for site in listed:
        classes.setdefault(site.class_key, []).append(site)
    return Listing(
        listed,
        [place[site] for site in listed],
        {key: tuple(group) for key, group in classes.items()},
        place,
        {key: tuple(group) for key, group in twins.items()},
        {site: None for site in listed if site.several_roots and not _safe(graph, site)},
    )
