"""Rewrites that pay only together: a rule at all its sites, and the operators that cancel between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable

from agents.conclusion.last_look import lacks_time, propose
from agents.conclusion.racing import estimate, upper
from agents.core.base import Action, Search, Visit, action_of
from agents.core.records import is_supposed
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.sites import RewriteStep, apply_step, is_near, repeated
from agents.searching.known_starts import visit_own
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.sites import Site


def tidy(
    search: Search, graph: Graph, actions: tuple[Action, ...], since: int, most: int
) -> tuple[Graph, tuple[Action, ...]]:
    """Apply rewrites that remove operators and insert none, at most `most`, as long as there are some at nodes with ids
    from `since` on: what rewrites put between neighbours, such as a change of layout and its inverse, meets here."""

    def choose(here: Graph) -> Candidate | None:
        return _widest(c for c in search.problem.rewriter.candidates(here) if _eliminates(c, since))

    for candidate, after in repeated(search, graph, choose, most):
        if len(after.nodes) >= len(graph.nodes):
            break
        graph, actions = after, (*actions, action_of(candidate))
    return graph, actions


def _widest(candidates: Iterable[Candidate]) -> Candidate | None:
    """Return the candidate with the most sites, if there is one."""
    return max(candidates, key=lambda c: c.count, default=None)


def _eliminates(candidate: Candidate, since: int) -> bool:
    return (
        bool(candidate.sites) and any(node.id >= since for node in candidate.site.match.nodes) and _less(candidate.site)
    )


def _less(site: Site) -> bool:
    """Return whether the inserted operators are some of the removed ones."""
    inserted, removed = Counter(n.op for n in site.replacement.nodes), Counter(n.op for n in site.removed)
    return inserted < removed


def continue_with(
    search: Search, graph: Graph, actions: tuple[Action, ...], rules: Collection[str], since: int, most: int
) -> tuple[Graph, tuple[Action, ...]]:
    """Apply rewrites by these rules, at most `most`, as long as they match nodes with ids from `since` on, or their
    readers."""

    def choose(here: Graph) -> Candidate | None:
        brought_in = {node for node in here.nodes if node >= since}
        offered = search.problem.rewriter.candidates_by(here, rules)
        return _widest(c for c in offered if any(is_near(here, site, brought_in, or_reads=True) for site in c.sites))

    for candidate, after in repeated(search, graph, choose, most):
        graph, actions = after, (*actions, action_of(candidate))
    return graph, actions


def sweep(
    search: Search,
    start: Visit,
    effects: Effects,
    options: RegionalOptions,
    until: Callable[[], bool],
    *,
    carried_only: bool = False,
) -> Visit | None:
    """Try each rule at all its sites, then what carries it on, then what cancels; measure the result end to end where
    something did either. Return the best of these graphs if it is faster than `start` by `options.gain`, else None.
    Where no time is left to measure the first one, it is left to the conclusion.

    Rules that lose too much by themselves are left out, and those without several sites: windows saw all of these.

    Args:
        start: where that is the problem's own graph, it need not be measured before.
        carried_only: try no rules but those that others carry on, without what cancels: to look for that, all rules
            are matched with the graph.
    """
    best = start
    rules = _carried(search, start.graph) if carried_only else _rules(search, start.graph, effects, options.worst_alone)
    for rule in rules:
        if until() or not search.can_measure:
            break
        everywhere = frozenset(start.graph.nodes)
        applied = apply_step(
            search, start.graph, RewriteStep("", rule.name, rule.family), everywhere, options.most_sites
        )
        if applied is None:
            continue
        since = start.graph.next_id
        graph, actions = continue_with(
            search, applied[0], (*start.actions, *applied[1]), rule.carried_by, since, options.most_sites
        )
        if not carried_only:
            graph, actions = tidy(search, graph, actions, since, options.most_sites)
        if graph is applied[0] or graph.hash == start.graph.hash:
            continue
        if lacks_time(search, graph):
            propose(search, graph, actions)
            break
        visit = Visit(graph, search.measure(graph, actions), actions)
        visit_own(search, visit.latency)
        if _beats(search, visit, best, options.gain):
            best = visit
    return None if best is start else best


def sweep_on(search: Search, start: Visit | None, effects: Effects, options: RegionalOptions, last: float) -> bool:
    """Sweep a graph, and then the best of what this gives, until nothing gains or until a time of the search. Where the
    model is small, the first sweep that gains nothing is followed by one of the best graph that may be as fast: what a
    rule costs at all its sites may cancel with what the next one does there. Return whether that gave a faster graph
    than `start`."""
    best = level = start
    ties = 1
    while level is not None and best is not None and level.latency.ok and search.seconds < last:
        known = set(search.visits)
        found = sweep(search, level, effects, options, lambda: search.seconds >= last)
        if found is not None and (level is best or _beats(search, found, best, options.gain)):
            best = found
        if found is None and ties and is_small(search, options):
            ties -= 1
            found = _tie(search, level, known)
        level = found
    return best is not start


def _tie(search: Search, start: Visit, known: Collection[str]) -> Visit | None:
    """Return the fastest of the graphs that were not known before if it may be as fast as `start`."""
    least = estimate(search, start.graph, start.latency)
    new = [visit for key, visit in search.visits.items() if key not in known and visit.latency.ok]
    equal = [visit for visit in new if upper(search, visit.graph, visit.latency) >= least]
    return max(equal, key=lambda visit: estimate(search, visit.graph, visit.latency), default=None)


def sweep_is_short(search: Search, graph: Graph, effects: Effects, options: RegionalOptions) -> bool:
    """Return whether `sweep` takes little of the time that is left: graphs are measured fast, the fastest of those so
    far, and few rules have several sites.

    Args:
        graph: the one that the sweep begins with.
    """
    seconds = len(_rules(search, graph, effects, options.worst_alone)) * _least_cost(search)
    return search.seconds + seconds <= search.after(options.sweeping_share)


def is_small(search: Search, options: RegionalOptions) -> bool:
    """Return whether many graphs of the model can be measured in the time that is left."""
    return options.small * _least_cost(search) <= search.allowed - search.seconds


def _least_cost(search: Search) -> float:
    """Return the seconds of the shortest measurement so far; graphs that were timed beside another have none."""
    costs = (search.problem.cost(visit.graph) for visit in search.visits.values())
    return min((cost for cost in costs if cost > 0.0), default=0.0)


def _beats(search: Search, visit: Visit, best: Visit, gain: float) -> bool:
    """Return whether a visit is better than the best one; the original needs no further comparison, as the visit was
    timed beside it."""
    if is_supposed(best):
        return search.worth(visit.graph, visit.latency) > search.worth(best.graph, best.latency) * (1.0 + gain)
    return search.beats(visit, best, gain)


def _rules(search: Search, graph: Graph, effects: Effects, worst: float) -> list[Rule]:
    """Return the rules with several sites, first those that others carry on, then those that gained most by
    themselves."""
    sites = Counter(site.rule for site in search.problem.rewriter.sites(graph))
    expected = {rule: effects.expected([(rule.name,)], 0.0, 0.0, 0.0) for rule, count in sites.items() if count > 1}
    found = [rule for rule, gain in expected.items() if gain > worst or rule.carried_by]
    return sorted(found, key=lambda rule: (not rule.carried_by, -expected[rule]))


def _carried(search: Search, graph: Graph) -> list[Rule]:
    """Return the rules with several sites that others carry on. No other rules are matched with the graph."""
    rewriter = search.problem.rewriter
    carried = [rule for rule in rewriter.rules if rule.carried_by]
    sites = Counter[str]()
    for candidate in rewriter.candidates_by(graph, [rule.name for rule in carried]):
        sites[candidate.rule] += candidate.count
    return [rule for rule in carried if sites[rule.name] > 1]
