"""Windows of a model for trying rewrites in: classes of sites, each with a window around a typical one, and the steps
that a chain makes possible in its window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.extraction import NotSeparable
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.window import MARGIN, shape_key, window_around
from graph_rewrite.rewriting.enumerator import Enumerator
from graph_rewrite.rewriting.sites import Site

COMPARED_SITES = 12
"""Sites of a class whose surroundings are compared by default."""


@dataclass(frozen=True, slots=True)
class SiteClass:
    """The sites of a class that can all be rewritten (`apart`), a typical one first, and the window around that."""

    sites: tuple[Site, ...]
    window: Graph
    key: str
    """Equal for the same class in an alike window."""
    seconds: float
    """Estimate of how long the window takes."""


def site_classes(
    rewriter: Enumerator, graph: Graph, margin: int = MARGIN, compared_sites: int = COMPARED_SITES
) -> Iterator[SiteClass]:
    """Yield the classes of sites whose surroundings can be cut out.

    Args:
        margin: neighbours that a window takes in, in each direction.
        compared_sites: sites of a class, spread over the model, whose surroundings are compared for finding the usual
            ones.
    """
    for sites in sites_by_class(rewriter, graph).values():
        site_class = class_of_sites(graph, sites, margin, compared_sites)
        if site_class is not None:
            yield site_class


def class_of_sites(
    graph: Graph, sites: tuple[Site, ...], margin: int = MARGIN, compared_sites: int = COMPARED_SITES
) -> SiteClass | None:
    """Return a class with the window that most of its sites have: what surrounds the first layer of a network, such as
    its embedding, makes steps possible that the others don't have. None where no surroundings can be cut out.

    Args:
        sites: of one class.
        margin, compared_sites: as of `site_classes`.
    """
    found: dict[str, list[tuple[Site, Graph]]] = {}
    for site in sites[:: -(-len(sites) // compared_sites)]:
        try:
            reached = _reach(graph, site)
            if site.rule.followed_by:
                reached = _surrounded(graph, reached, margin)
            small = window_around(graph, reached, margin)
        except NotSeparable:
            continue
        found.setdefault(shape_key(small), []).append((site, small))
    if not found:
        return None
    key, alike = max(found.items(), key=lambda entry: len(entry[1]))
    usual, small = alike[0]
    others = (site for site in sites if site is not usual)
    return SiteClass(apart((usual, *others)), small, f"{usual.class_key}:{key}", estimated_seconds(small))


def apart(sites: Iterable[Site]) -> tuple[Site, ...]:
    """Return sites without those that an earlier one takes away, as when all of them are rewritten in turn: of eight
    products of one matrix 28 pairs can be merged, and four of them together."""
    found, gone = list[Site](), set[int]()
    for site in sites:
        if gone.isdisjoint(node.id for node in site.match.nodes):
            found.append(site)
            gone.update(node.id for node in site.removed)
    return tuple(found)


def _reach(graph: Graph, site: Site) -> frozenset[int]:
    """Return the nodes that a rewrite matches or removes, and those between what it reads farther away and its
    match."""
    matched = frozenset(node.id for node in site.match.nodes)
    near = {value for node in site.match.nodes for value in (*node.inputs, *node.outputs)}
    far = site.replacement.externals() - near
    reached = matched.union(node.id for node in site.removed)
    return reached | _between(graph, far, matched) if far else reached


def _surrounded(graph: Graph, ids: frozenset[int], margin: int) -> frozenset[int]:
    """Return nodes with their neighbours in each direction, whatever these compute, and with what lies between these:
    rules that follow a rewrite may match it."""
    above, below = set(ids), set(ids)
    for _ in range(margin):
        above |= {graph.producer[v] for n in above for v in graph.nodes[n].inputs if v in graph.producer}
        below |= {reader for n in below for v in graph.nodes[n].outputs for reader in graph.consumers.get(v, ())}
    found = frozenset(above | below)
    return found | _between(graph, {value for n in found for value in graph.nodes[n].outputs}, found)


def _between(graph: Graph, far: set[int], matched: frozenset[int]) -> frozenset[int]:
    """Return the nodes on paths from values to matched nodes."""
    below, stack = set[int](), list(far)
    last = max(graph.ranks[node] for node in matched)
    while stack:
        for node in graph.consumers.get(stack.pop(), ()):
            if node not in below and graph.ranks[node] < last:
                below.add(node)
                stack.extend(graph.nodes[node].outputs)
    above, stack = set[int](), [v for node in matched for v in graph.nodes[node].inputs if v is not None]
    while stack:
        node = graph.producer.get(stack.pop(), -1)
        if node in below and node not in above:
            above.add(node)
            stack.extend(v for v in graph.nodes[node].inputs if v is not None)
    return frozenset(above)


def sites_by_class(rewriter: Enumerator, graph: Graph) -> dict[str, tuple[Site, ...]]:
    """Return the sites by class, in the order of the rules and along the graph."""
    found: dict[str, list[Site]] = {}
    for site in rewriter.sites(graph):
        found.setdefault(site.class_key, []).append(site)
    return {key: tuple(sites) for key, sites in found.items()}


def enables(rewriter: Enumerator, before: Graph) -> Callable[[Iterable[Site]], bool]:
    """Return a test of sites in a later graph: whether any of them is a rewrite that `before` did not offer."""
    known = {site.key for site in rewriter.sites(before)}
    return lambda sites: any(site.key not in known for site in sites)


def further_steps(rewriter: Enumerator, window: Graph, before: Graph, graph: Graph) -> dict[str, tuple[Site, ...]]:
    """Return the steps that the last rewrite of a chain made possible, by rule: all sites of the rule that touch what
    the chain brought in. What a neighbour gains by itself is its own window's business.

    Args:
        window: the window before the chain.
        before: the window before the last rewrite.
        graph: the window after it.
    """
    # Of several classes: the products of one Winograd form differ at their edges, and belong together.
    groups: dict[str, list[Site]] = {}
    for sites in filter(enables(rewriter, before), sites_by_class(rewriter, graph).values()):
        touching = [site for site in sites if any(node.id not in window.nodes for node in site.match.nodes)]
        if touching:
            groups.setdefault(touching[0].rule.name, []).extend(touching)
    return {rule: tuple(sites) for rule, sites in groups.items()}
