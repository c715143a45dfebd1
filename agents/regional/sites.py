"""Steps of a search by windows: rewrites at all sites of a class, in a window and in the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from agents.core.base import Action, Search, action_of
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.sites import Site


@dataclass(frozen=True, slots=True)
class RewriteStep:
    """A rewrite at all sites of a class. `class_key` is the same in a window and in the whole graph."""

    class_key: str
    rule: str
    family: str


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
    done next to it. It ends where a rule leads back: sums that are associated the other way round, and then again.

    Args:
        most_sites: applications at most.

    Returns:
        The graph, the actions, and the nodes that they inserted; None where there is no site.
    """
    actions, inserted, passed = list[Action](), set[int](), {graph.hash}
    while search.can_apply:
        offered = search.problem.rewriter.candidates_by(graph, (step.rule,))
        offered = [c for c in offered if any(n.id in near for site in c.sites for n in site.match.nodes)]
        if not offered:
            break
        candidate = max(offered, key=lambda c: (c.site.class_key == step.class_key, c.count))
        after = search.apply(candidate)
        if after is None or (edit := after.edit) is None or after.hash in passed:
            break
        passed.add(after.hash)
        near = near & after.nodes.keys()
        graph, actions = after, [*actions, action_of(candidate)]
        inserted |= set(edit.delta.inserted)
        if len(actions) >= most_sites:
            break
    return (graph, tuple(actions), frozenset(inserted)) if actions else None
