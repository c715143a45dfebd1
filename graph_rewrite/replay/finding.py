"""The search for recorded sites in another graph: by addresses first, then by structure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence

from graph_rewrite.replay.evidence import SiteRecord, Surroundings
from graph_rewrite.rewriting.sites import Site

Trait = tuple[Callable[[SiteRecord], Hashable], Callable[[Surroundings, Site], Hashable]]

_NODES: Trait = (lambda r: r.nodes, lambda s, site: s.nodes(site))
_ROOTS: Trait = (lambda r: r.roots, lambda s, site: s.roots(site))
_BOUND: Trait = (lambda r: r.bound, lambda s, site: s.bound(site))
_SOURCE: Trait = (lambda r: r.source, lambda s, site: s.source(site))
_SHAPE: Trait = (lambda r: r.shape, lambda s, site: s.source(site, any_size=True))
_RESULT: Trait = (lambda r: r.result, lambda s, site: s.result(site))
_ABOVE: Trait = (lambda r: r.above, lambda s, site: s.above_roots(site))
_BELOW: Trait = (lambda r: r.below, lambda s, site: s.below_roots(site))

_BY_NAME: tuple[tuple[Trait, ...], ...] = (
    (_NODES, _BOUND, _SOURCE, _RESULT),
    (_NODES, _BOUND, _SHAPE, _RESULT),
    (_NODES, _BOUND, _SHAPE),
    (_NODES, _SHAPE),
    (_ROOTS, _SHAPE, _RESULT),
    (_ROOTS, _SHAPE),
)
_BY_STRUCTURE: tuple[tuple[Trait, ...], ...] = (
    (_ABOVE, _BELOW, _SOURCE, _RESULT),
    (_ABOVE, _BELOW, _SHAPE, _RESULT),
    (_ABOVE, _BELOW, _SHAPE),
    (_ABOVE, _SOURCE, _RESULT),
    (_ABOVE, _SHAPE),
    (_BELOW, _SOURCE, _RESULT),
    (_BELOW, _SHAPE),
)
_BY_NUMBER: tuple[tuple[Trait, ...], ...] = ((_SOURCE, _RESULT), (_SHAPE, _RESULT))
"""Sites that nothing but their number tells: all of a kind, where there are as many as were recorded."""


def find_sites(records: Sequence[SiteRecord], sites: Sequence[Site], around: Surroundings) -> list[Site | None]:
    """Return, for each recorded site, the site that it is here; None where there is none.

    Addresses decide before structure does, the specific before the general; no site is taken twice.
    """
    found: list[Site | None] = [None] * len(records)
    open_records, left = dict(enumerate(records)), list(sites)
    for traits, named, all_or_none in _rounds():
        if not open_records or not left:
            break
        wanted: dict[Hashable, list[int]] = defaultdict(list)
        for i, record in open_records.items():
            if not (named and not all((*record.nodes, *record.roots))):
                wanted[tuple(recorded(record) for recorded, _ in traits)].append(i)
        offered: dict[Hashable, list[Site]] = defaultdict(list)
        for site in left:
            offered[tuple(here(around, site) for _, here in traits)].append(site)
        for key, numbers in wanted.items():
            if all_or_none and len(numbers) != len(offered.get(key, ())):
                continue
            for i, site in zip(numbers, offered.get(key, ()), strict=False):
                found[i] = site
                del open_records[i]
        taken = {id(site) for site in found if site is not None}
        left = [site for site in left if id(site) not in taken]
    return found


def _rounds() -> Iterator[tuple[tuple[Trait, ...], bool, bool]]:
    """Yield which traits must agree, whether they need names, and whether a whole kind must be found or none of it."""
    yield from ((traits, True, False) for traits in _BY_NAME)
    yield from ((traits, False, False) for traits in _BY_STRUCTURE)
    yield from ((traits, False, True) for traits in _BY_NUMBER)
