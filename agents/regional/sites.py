"""Classes of sites, each with a window around a typical one in which chains of rewrites are tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agents.core.base import Action, Search, action_of
from agents.regional.options import RegionalOptions
from agents.regional.roofline import estimated_seconds
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.window import NotSeparable, shape_key, window_around
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.rules.rewriter import Rewriter


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """A rewrite at all sites of a class. `class_key` is the same in a window and in the whole graph."""

    class_key: str
    rule: str
    family: str


@dataclass(frozen=True, slots=True)
class SiteClass:
    """All sites of a class, a typical one first, and the window around that."""

    sites: tuple[Site, ...]
    window: Graph
    key: str
    """Equal for the same class in an alike window."""
    seconds: float
    """Estimate of how long the window takes."""

    @property
    def touched(self) -> frozenset[int]:
        """Nodes that the typical site removes."""
        return frozenset(node.id for node in self.sites[0].removed)


def site_classes(rewriter: Rewriter, graph: Graph, options: RegionalOptions) -> Iterator[SiteClass]:
    """Yield the classes of sites whose surroundings can be cut out."""
    for sites in sites_by_class(rewriter, graph).values():
        site_class = _site_class(graph, sites, options)
        if site_class is not None:
            yield site_class


def _site_class(graph: Graph, sites: tuple[Site, ...], options: RegionalOptions) -> SiteClass | None:
    """Return a class with the window that most of its sites have: what surrounds the first layer of a network, such as
    its embedding, makes steps possible that the others don't have."""
    found: dict[str, list[tuple[Site, Graph]]] = {}
    for site in sites[:: -(-len(sites) // options.compared_sites)]:
        try:
            small = window_around(graph, _reach(graph, site), options.margin)
        except (NotSeparable, InvalidRewriteError):
            continue
        found.setdefault(shape_key(small), []).append((site, small))
    if not found:
        return None
    key, alike = max(found.items(), key=lambda entry: len(entry[1]))
    usual, small = alike[0]
    others = tuple(site for site in sites if site is not usual)
    return SiteClass((usual, *others), small, f"{usual.class_key}:{key}", estimated_seconds(small, small.nodes))


def _reach(graph: Graph, site: Site) -> frozenset[int]:
    """Return the nodes that a rewrite matches. Where it looks farther than its match, add those that die with it and
    those between what it reads and the match."""
    matched = frozenset(node.id for node in site.match.nodes)
    near = {value for node in site.match.nodes for value in (*node.inputs, *node.outputs)}
    far = site.replacement.externals() - near
    if not far:
        return matched
    edit = Candidate("site", graph, (site,)).apply().edit
    reached = matched | _between(graph, far, matched)
    return reached if edit is None else reached | edit.delta.removed


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


def sites_by_class(rewriter: Rewriter, graph: Graph) -> dict[str, tuple[Site, ...]]:
    """Return the sites by class, in the order of the rules and along the graph."""
    found: dict[str, list[Site]] = {}
    for site in rewriter.sites(graph):
        found.setdefault(site.class_key, []).append(site)
    return {key: tuple(sites) for key, sites in found.items()}


def apply_all(
    search: Search, graph: Graph, sites: tuple[Site, ...], applied: Callable[[Site, range], None] | None = None
) -> Graph | None:
    """Return the graph with these sites rewritten, but for those that an earlier one took away; None where none is
    left. `applied` is told of each, with the ids that its nodes and values come from."""
    after = search.apply(Candidate("class" if len(sites) > 1 else "site", graph, sites), applied)
    return None if after is None or after.hash == graph.hash else after


def apply_step(
    search: Search, graph: Graph, step: RewriteStep, near: frozenset[int], most_sites: int
) -> tuple[Graph, tuple[Action, ...], frozenset[int]] | None:
    """Apply a step in a whole graph, by candidates that the problem offers there, at sites that match one of the nodes
    `near`: those of the step's class first, then others of its rule, since what a rule does may change with what was
    done next to it.

    Args:
        most_sites: applications at most.

    Returns:
        The graph, the actions, and the nodes that they inserted; None where there is no site.
    """
    actions, inserted = list[Action](), set[int]()
    while search.can_apply:
        offered = search.problem.rewriter.candidates_by(graph, (step.rule,))
        offered = [c for c in offered if any(n.id in near for site in c.sites for n in site.match.nodes)]
        if not offered:
            break
        candidate = max(offered, key=lambda c: (c.site.class_key == step.class_key, c.count))
        after = search.apply(candidate)
        if after is None or (edit := after.edit) is None or after.hash == graph.hash:
            break
        near = near & after.nodes.keys()
        graph, actions = after, [*actions, action_of(candidate)]
        inserted |= set(edit.delta.inserted)
        if len(actions) >= most_sites:
            break
    return (graph, tuple(actions), frozenset(inserted)) if actions else None
