"""Rewrites that pay only together: a rule at all its sites, and the operators that cancel between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from agents.core.base import Action, Search, Visit, action_of
from agents.regional.gains import Effects
from agents.regional.sites import MOST_SITES, Step, take
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.sites import Site

WORST = -0.5
"""Share of its window's time that a rule may lose by itself to be tried everywhere: what it costs may cancel."""


def tidy(search: Search, graph: Graph, actions: tuple[Action, ...], since: int) -> tuple[Graph, tuple[Action, ...]]:
    """Rewrites that take operators away and bring none, as long as there are some at nodes with ids from `since` on:
    what rewrites put between neighbours, such as a change of layout and its inverse, meets here."""
    return _repeat(
        search, graph, actions,
        offered=lambda here: (c for c in search.problem.rewriter.candidates(here) if _eliminates(c, since)),
        progress=lambda before, after: len(after.nodes) < len(before.nodes),
    )  # fmt: skip


def _eliminates(candidate: Candidate, since: int) -> bool:
    return (
        bool(candidate.sites) and any(node.id >= since for node in candidate.site.match.nodes) and _less(candidate.site)
    )


def _less(site: Site) -> bool:
    """Whether what is inserted is part of what is removed, operator by operator."""
    inserted, removed = Counter(n.op for n in site.replacement.nodes), Counter(n.op for n in site.removed)
    return inserted < removed


def carry_on(
    search: Search, graph: Graph, actions: tuple[Action, ...], rules: Collection[str], since: int
) -> tuple[Graph, tuple[Action, ...]]:
    """Rewrites by these rules as long as they match nodes with ids from `since` on, or their readers."""
    return _repeat(
        search, graph, actions,
        offered=lambda here: (
            c for c in search.problem.rewriter.candidates_by(here, rules) if _reads(c, here, since)
        ),
        progress=lambda before, after: after.hash != before.hash,
    )  # fmt: skip


def _repeat(
    search: Search,
    graph: Graph,
    actions: tuple[Action, ...],
    offered: Callable[[Graph], Iterable[Candidate]],
    progress: Callable[[Graph, Graph], bool],
) -> tuple[Graph, tuple[Action, ...]]:
    """Of the candidates that are offered for a graph the one with the most sites, again and again while that is
    progress from the graph before to the one after."""
    for _ in range(MOST_SITES):
        candidate = max(offered(graph), key=lambda c: c.count, default=None) if search.can_apply else None
        after = None if candidate is None else search.apply(candidate)
        if candidate is None or after is None or not progress(graph, after):
            break
        graph, actions = after, (*actions, action_of(candidate))
    return graph, actions


def _reads(candidate: Candidate, graph: Graph, since: int) -> bool:
    matched = [node for site in candidate.sites for node in site.match.nodes]
    read = (graph.producer.get(value, -1) for node in matched for value in node.inputs if value is not None)
    return any(node.id >= since for node in matched) or any(producer >= since for producer in read)


def sweep(search: Search, start: Visit, effects: Effects, worth: float, until: Callable[[], bool]) -> Visit | None:
    """Each rule at all its sites, what carries it on, and what cancels then, measured end to end where something did:
    the best of these graphs, if it is surely faster than `start` by the share `worth`.

    Rules that lose too much by themselves are left out, and those without several sites: windows saw all of these.
    """
    best = start
    for rule in _rules(search, start.graph, effects):
        if until() or not search.can_measure:
            break
        everywhere = frozenset(start.graph.nodes)
        taken = take(search, start.graph, Step("", rule.name, rule.family), everywhere)
        if taken is None:
            continue
        since = start.graph.next_id
        carried = carry_on(search, taken[0], (*start.actions, *taken[1]), rule.carried_by, since)
        graph, actions = tidy(search, *carried, since)
        if graph is taken[0] or graph.hash == start.graph.hash:
            continue
        visit = Visit(graph, search.measure(graph, actions), actions)
        if search.beats(visit, best, worth):
            best = visit
    return None if best is start else best


def _rules(search: Search, graph: Graph, effects: Effects) -> list[Rule]:
    """Rules with several sites, first those that others carry on, then those that gained most by themselves."""
    sites = Counter(site.rule for site in search.problem.rewriter.sites(graph))
    expected = {rule: effects.expected([(rule.name,)], 0.0, 0.0, 0.0) for rule, count in sites.items() if count > 1}
    found = [rule for rule, gain in expected.items() if gain > WORST or rule.carried_by]
    return sorted(found, key=lambda rule: (not rule.carried_by, -expected[rule]))
