"""Steps of a search by windows: rewrites at all sites of a class, in a window and in the whole graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

from agents.core.base import Action, Search, action_of
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.task.site_windows import SiteClass


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """A rewrite at all sites of a class. `class_key` is the same in a window and in the whole graph."""

    class_key: str
    rule: str
    family: str
    follows: tuple[str, ...] = ()
    """Where it follows a step before (`Rule.followed_by`), the names of all rules that may. Such a step may match
    nothing that was brought in, but only read it."""


def is_near(graph: Graph, site: Site, near: Set[int], *, or_reads: bool = False) -> bool:
    """Return whether a site matches one of the nodes `near`, or reads what one of them computes."""
    nodes = site.match.nodes
    if any(node.id in near for node in nodes):
        return True
    return or_reads and any(
        graph.producer.get(value) in near for node in nodes for value in node.inputs if value is not None
    )


def apply_all(
    search: Search, graph: Graph, sites: tuple[Site, ...], applied: Callable[[Site, range], None] | None = None
) -> Graph | None:
    """Return the graph with these sites rewritten, but for those that an earlier one took away; None where none is
    left. `applied` is told of each, with the ids that its nodes and values come from."""
    after = search.apply(Candidate("class" if len(sites) > 1 else "site", graph, sites), applied)
    return None if after is None or after.hash == graph.hash else after


def repeated(
    search: Search, graph: Graph, choose: Callable[[Graph], Candidate | None], most: int
) -> Iterator[tuple[Candidate, Graph]]:
    """Yield the candidates that are chosen and applied from graph to graph, at most `most`, each with the graph that it
    leads to. It ends where none is chosen, and where one leads back to a graph that was passed: sums that are
    associated the other way round, and then again."""
    passed = {graph.hash}
    for _ in range(most):
        candidate = choose(graph) if search.can_apply else None
        after = None if candidate is None else search.apply(candidate)
        if candidate is None or after is None or after.hash in passed:
            return
        passed.add(after.hash)
        graph = after
        yield candidate, after


def apply_step(
    search: Search, graph: Graph, step: RewriteStep, near: frozenset[int], most_sites: int
) -> tuple[Graph, tuple[Action, ...], frozenset[int]] | None:
    """Apply a step in a whole graph, by candidates that the problem offers there, at sites that are near some nodes
    (`is_near`): those of the step's class first, then others of its rule, since what a rule does may change with what
    was done next to it.

    Args:
        near: the nodes.
        most_sites: applications at most.

    Returns:
        The graph, the actions, and the nodes that they inserted; None where there is no site.
    """
    actions, inserted = list[Action](), set[int]()

    def choose(here: Graph) -> Candidate | None:
        offered = search.problem.rewriter.candidates_by(here, (step.rule,))
        close = (c for c in offered if any(is_near(here, site, near, or_reads=bool(step.follows)) for site in c.sites))
        return max(close, key=lambda c: (c.site.class_key == step.class_key, c.count), default=None)

    for candidate, after in repeated(search, graph, choose, most_sites):
        if (edit := after.edit) is None:
            break
        graph = after
        actions.append(action_of(candidate))
        inserted |= set(edit.delta.inserted)
    return (graph, tuple(actions), frozenset(inserted)) if actions else None


def removed_by_site(
    site_class: SiteClass, graph: Graph, gone: Set[int] = frozenset()
) -> tuple[tuple[int, frozenset[int]], ...]:
    """Return where the sites of a class begin, with the nodes that are removed there.

    Args:
        graph: the whole graph.
        gone: nodes that the whole chain removes at the usual site, which is the first one. At the others those are
            removed that stand in their places.
    """
    usual, *others = site_class.sites
    removed = {site: frozenset(node.id for node in site.removed) for site in site_class.sites}
    further = gone - removed[usual]
    removed[usual] |= further
    for site in others if further else ():
        removed[site] |= _in_place_of(graph, usual, site, further, site_class.window.nodes.keys())
    return tuple((site.anchor, nodes) for site, nodes in removed.items())


def _in_place_of(graph: Graph, usual: Site, site: Site, wanted: Set[int], reach: Set[int]) -> frozenset[int]:
    """Return the nodes that stand around a site as the wanted ones do around the usual site of its class: they are
    reached from the match through the same inputs and outputs, by the same operators. What has no such counterpart is
    left out.

    Args:
        reach: nodes around the usual site that are followed.
    """
    found = {one.id: other.id for one, other in zip(usual.match.nodes, site.match.nodes, strict=True)}
    queue = deque(found.items())
    while queue:
        for one, other in _neighbours(graph, *queue.popleft()):
            if one in reach and one not in found:
                found[one] = other
                queue.append((one, other))
    return frozenset(found[node] for node in wanted if node in found)


def _neighbours(graph: Graph, one: int, other: int) -> Iterator[tuple[int, int]]:
    """Yield the neighbours of two nodes that stand in the same places and have the same operator: what computes their
    inputs, and readers of their outputs, where no other reader is of the same kind."""
    here, there = graph.nodes[one], graph.nodes[other]
    for value, counterpart in zip(here.inputs, there.inputs, strict=False):
        above, beside = (None if v is None else graph.producer.get(v) for v in (value, counterpart))
        if above is not None and beside is not None and graph.nodes[above].op == graph.nodes[beside].op:
            yield above, beside
    for value, counterpart in zip(here.outputs, there.outputs, strict=False):
        readers, others = _single_readers(graph, value), _single_readers(graph, counterpart)
        yield from ((readers[kind], others[kind]) for kind in readers.keys() & others.keys())


def _single_readers(graph: Graph, value: int) -> dict[tuple[str, int], int]:
    """Return the readers of a value by operator and input, without those that share these."""
    kinds: dict[tuple[str, int], list[int]] = {}
    for reader in graph.consumers.get(value, ()):
        node = graph.nodes[reader]
        kinds.setdefault((node.op, node.inputs.index(value)), []).append(reader)
    return {kind: readers[0] for kind, readers in kinds.items() if len(readers) == 1}
