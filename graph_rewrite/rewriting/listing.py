"""The ordered list of all sites of a graph, kept up to date: the cost of a change grows with the change."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.sites import Site, makes_cycle

Position = tuple[int, float, int, int]
"""Position of a site in the order of sites: rule, rank of the anchor, anchor, number among the rule's matches there."""


_Key = tuple[frozenset[int], str]
"""`Site.key`: the nodes that are removed, and what is inserted."""

FEW = 16
"""Most changes that are made one by one; more are sorted in together."""


@dataclass(slots=True)
class Listing:
    """Sites without duplicates, in order, and grouped into classes.

    Positions hold ranks, so a listing is only good while the graph's ranks stay; `copy` and change it otherwise.
    """

    sites: list[Site] = field(default_factory=list)
    positions: list[Position] = field(default_factory=list)
    """Positions of `sites`, ascending."""
    classes: dict[str, tuple[Site, ...]] = field(default_factory=dict)
    """Sites of each class, in order."""
    _position: dict[Site, Position] = field(default_factory=dict)
    _twins: dict[_Key, tuple[Site, ...]] = field(default_factory=dict)
    _doubtful: dict[Site, None] = field(default_factory=dict)

    def copy(self) -> Listing:
        return Listing(
            self.sites.copy(), self.positions.copy(), self.classes.copy(), self._position.copy(), self._twins.copy(),
            self._doubtful.copy(),
        )  # fmt: skip

    def update(self, graph: Graph, gone: Iterable[Site], come: Iterable[tuple[Site, int]]) -> None:
        """Take sites out, and put others in, each with its number among the rule's matches at its anchor. Of several
        sites that lead to the same graph only the first is listed."""
        before: dict[_Key, Site | None] = {}
        left: dict[Site, Position] = {}
        for site in gone:
            group = self._twins.pop(site.key)
            before.setdefault(site.key, group[0])
            left[site] = self._position.pop(site)
            if len(group) > 1:
                self._twins[site.key] = tuple(twin for twin in group if twin is not site)
        for site, number in come:
            self._position[site] = _position_of(graph, site, number)
            group = self._twins.get(site.key, ())
            before.setdefault(site.key, group[0] if group else None)
            self._twins[site.key] = tuple(sorted((*group, site), key=self._position.__getitem__)) if group else (site,)
        out: dict[Site, Position] = {}
        new: list[Site] = []
        for key, old in before.items():
            now = self._twins[key][0] if key in self._twins else None
            # A site that stays may have another number now.
            if old is now and (old is None or left.get(old, self._position[old]) == self._position[old]):
                continue
            if old is not None:
                out[old] = left[old] if old in left else self._position[old]
            if now is not None:
                new.append(now)
        self._relist(out, new)
        self._regroup(out, new)
        for site in out:
            self._doubtful.pop(site, None)
        self._doubtful |= _doubtful(graph, new)

    def cyclic(self, graph: Graph) -> set[Site]:
        """Return the sites that would make a cycle in this graph."""
        return {site for site in self._doubtful if makes_cycle(graph, site)}

    def ordered_classes(self) -> list[tuple[Site, ...]]:
        """Return the classes in the order of their first sites."""
        return sorted(self.classes.values(), key=lambda group: self._position[group[0]])

    def _relist(self, out: Mapping[Site, Position], new: Sequence[Site]) -> None:
        if len(out) + len(new) > FEW:
            listed = [site for site in self.sites if site not in out] + list(new)
            self.sites = sorted(listed, key=self._position.__getitem__)
            self.positions = [self._position[site] for site in self.sites]
            return
        for position in out.values():
            index = bisect_left(self.positions, position)
            del self.sites[index], self.positions[index]
        for site in new:
            position = self._position[site]
            index = bisect_left(self.positions, position)
            self.sites.insert(index, site)
            self.positions.insert(index, position)

    def _regroup(self, out: Mapping[Site, Position], new: Sequence[Site]) -> None:
        more: dict[str, list[Site]] = {site.class_key: [] for site in out}
        for site in new:
            more.setdefault(site.class_key, []).append(site)
        for key, added in more.items():
            members = [site for site in self.classes.pop(key, ()) if site not in out] + added
            if members:
                self.classes[key] = tuple(sorted(members, key=self._position.__getitem__))


def _position_of(graph: Graph, site: Site, number: int) -> Position:
    return site.rule_index, graph.ranks[site.anchor], site.anchor, number


def _doubtful(graph: Graph, sites: Iterable[Site]) -> dict[Site, None]:
    """Return the sites that a rewrite elsewhere could let make a cycle."""
    return {site: None for site in sites if site.several_roots and not is_safe(graph, site)}


def is_safe(graph: Graph, site: Site) -> bool:
    """Tell whether all that the replacement reads is computed before any of the roots. If so, no rewrite elsewhere can
    make one root depend on another without changing what the replacement reads."""
    ranks, producer = graph.ranks, graph.producer
    first = min(ranks[producer[value]] for value in site.match.root_values)
    return all(value not in producer or ranks[producer[value]] < first for value in site.replacement.externals())


def listing_of(graph: Graph, found: Iterable[tuple[Site, ...]]) -> Listing:
    """Return a new listing, of the sites of all anchors."""
    listing = Listing()
    listing.update(graph, (), ((site, number) for sites in found for number, site in enumerate(sites)))
    return listing
