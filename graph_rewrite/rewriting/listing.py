"""The ordered list of all sites of a graph, kept up to date: the cost of a change grows with the change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import overload

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate, Site, makes_cycle

Place = tuple[int, float, int, int]
"""(rule, rank of the anchor, anchor, number among the rule's matches there): the order of sites."""


_Key = tuple[frozenset[int], str]
"""`Site.key`: nodes that are removed, and what is inserted."""

FEW = 16
"""Changes up to which each is made at its place; more are sorted in together."""


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
    _twins: dict[_Key, tuple[Site, ...]] = field(default_factory=dict)
    _doubtful: dict[Site, None] = field(default_factory=dict)

    def copy(self) -> Listing:
        return Listing(
            self.sites.copy(), self.places.copy(), self.classes.copy(), self._place.copy(), self._twins.copy(),
            self._doubtful.copy(),
        )  # fmt: skip

    def update(self, graph: Graph, gone: Iterable[Site], come: Iterable[tuple[Site, int]]) -> None:
        """Take sites out, and put others in, each with its number among the rule's matches at its anchor. Of several
        sites that lead to the same graph only the first in order is listed."""
        before: dict[_Key, Site | None] = {}
        left: dict[Site, Place] = {}
        for site in gone:
            group = self._twins.pop(site.key)
            before.setdefault(site.key, group[0])
            left[site] = self._place.pop(site)
            if len(group) > 1:
                self._twins[site.key] = tuple(twin for twin in group if twin is not site)
        for site, number in come:
            self._place[site] = _place_of(graph, site, number)
            group = self._twins.get(site.key, ())
            before.setdefault(site.key, group[0] if group else None)
            self._twins[site.key] = tuple(sorted((*group, site), key=self._place.__getitem__)) if group else (site,)
        out: dict[Site, Place] = {}
        new: list[Site] = []
        for key, old in before.items():
            now = self._twins[key][0] if key in self._twins else None
            # A site that stays may have another number now.
            if old is now and (old is None or left.get(old, self._place[old]) == self._place[old]):
                continue
            if old is not None:
                out[old] = left[old] if old in left else self._place[old]
            if now is not None:
                new.append(now)
        self._relist(out, new)
        self._regroup(out, new)
        for site in out:
            self._doubtful.pop(site, None)
        self._doubtful |= _doubtful(graph, new)

    def cyclic(self, graph: Graph) -> set[Site]:
        """Sites that would make a cycle in this graph."""
        return {site for site in self._doubtful if makes_cycle(graph, site)}

    def ordered_classes(self) -> list[tuple[Site, ...]]:
        """Classes by their first sites."""
        return sorted(self.classes.values(), key=lambda group: self._place[group[0]])

    def _relist(self, out: Mapping[Site, Place], new: Sequence[Site]) -> None:
        if len(out) + len(new) > FEW:
            listed = [site for site in self.sites if site not in out] + list(new)
            self.sites = sorted(listed, key=self._place.__getitem__)
            self.places = [self._place[site] for site in self.sites]
            return
        for place in out.values():
            index = bisect_left(self.places, place)
            del self.sites[index], self.places[index]
        for site in new:
            place = self._place[site]
            index = bisect_left(self.places, place)
            self.sites.insert(index, site)
            self.places.insert(index, place)

    def _regroup(self, out: Mapping[Site, Place], new: Sequence[Site]) -> None:
        more: dict[str, list[Site]] = {site.class_key: [] for site in out}
        for site in new:
            more.setdefault(site.class_key, []).append(site)
        for key, added in more.items():
            members = [site for site in self.classes.pop(key, ()) if site not in out] + added
            if members:
                self.classes[key] = tuple(sorted(members, key=self._place.__getitem__))


def _place_of(graph: Graph, site: Site, number: int) -> Place:
    return site.rule_index, graph.ranks[site.anchor], site.anchor, number


def _doubtful(graph: Graph, sites: Iterable[Site]) -> dict[Site, None]:
    """Those that a rewrite elsewhere could let make a cycle."""
    return {site: None for site in sites if site.several_roots and not _safe(graph, site)}


def _safe(graph: Graph, site: Site) -> bool:
    """Whether all that the replacement reads is computed before any of the roots: then no rewrite elsewhere can make
    one root depend on another without changing what the replacement reads."""
    ranks, producer = graph.ranks, graph.producer
    first = min(ranks[producer[value]] for value in site.match.root_values)
    return all(value not in producer or ranks[producer[value]] < first for value in site.replacement.externals())


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
    listing = Listing()
    listing.update(graph, (), ((site, number) for sites in found for number, site in enumerate(sites)))
    return listing
