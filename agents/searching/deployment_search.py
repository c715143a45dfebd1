"""Deployment choices for searches that cannot see them: those with a cost model, and those on an e-graph."""

from __future__ import annotations

from collections.abc import Collection

from agents.core.base import Search, Visit, action_of
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.deployment_choices import deployment_candidate, deployment_candidates

MARGIN = 0.003
"""A choice is kept where it gains more than this; less is noise."""
RESERVED_APPLICATIONS = 14
"""Applications that searches with a limit leave for this one, at most: two rounds over all choices."""


def reserved_applications(search: Search) -> int:
    """Return the applications that a search with a limit leaves for the choices of deployment: half of its own at most,
    and none where there are no choices."""
    limit = search.budget.applications
    if limit is None or not search.problem.rewriter.deployment:
        return 0
    return min(RESERVED_APPLICATIONS, limit // 2)


def search_deployment(
    search: Search, start: Visit | None = None, margin: float = MARGIN, share: float = 1.0,
    without: Collection[str] = (),
) -> Visit | None:  # fmt: skip
    """Refuse or keep ONNX Runtime's optimisers one by one on the best measured graph, with what the budget has left.

    Hill climbing by first improvement: a choice that gains more than `margin` is kept and the round goes on from
    there; a whole round without a gain ends it. Refusing an optimiser that does nothing here is not tried. Graphs are
    recorded in `search` with the actions that lead to them. Where the problem has no deployment choices
    (`--fixed-deployment`), nothing happens.

    Args:
        search: the search that is about to conclude.
        start: where to begin; the best measured graph by default.
        margin: relative gain above which a choice is kept, by the lower ends of the intervals, and in turn with the
            graph without it.
        share: part of the seconds that the budget has left that this may take; no measurement is begun for which that
            is not enough, as far as that of the best graph tells.
        without: labels of choices that are not tried, since windows told of them.

    Returns:
        The best visit reached: `start` itself where nothing gained; None where nothing was measured before.
    """
    best = search.best if start is None else start
    if best is None or not search.problem.rewriter.deployment:
        return best
    tried, last = {best.graph.hash}, search.after(share)
    gained = True
    while gained and not search.exhausted and search.seconds < last:
        gained = False
        for label in [choice.label for choice in deployment_candidates(best.graph) if choice.label not in without]:
            # What another choice made possible or impossible since the round began is told by the current graph.
            candidate = deployment_candidate(best.graph, label)
            if candidate is None or search.exhausted or not _is_time(search, best, last) or _idle(search, candidate):
                continue
            graph = search.apply(candidate)
            if graph is None or graph.hash in tried:
                continue
            tried.add(graph.hash)
            actions = (*best.actions, action_of(candidate))
            visit = Visit(graph, search.measure(graph, actions), actions)
            # Most choices change nothing: only those that seem to gain are worth the seconds of a comparison.
            if visit.latency.lower_bound > best.latency.lower_bound * (1.0 + margin) and search.beats(
                visit, best, margin
            ):
                best, gained = visit, True
    return best


def _is_time(search: Search, best: Visit, last: float) -> bool:
    """Return whether a measurement that takes as long as that of the best graph ends in time."""
    return search.seconds + search.problem.cost(best.graph) <= last and search.seconds < last


def _idle(search: Search, candidate: Candidate) -> bool:
    """Return whether a candidate refuses optimisers of which none changes the graph."""
    refused = candidate.disabled_optimizers - candidate.graph.disabled_optimizers
    active = search.problem.active_optimizers(candidate.graph) if refused else None
    return active is not None and not refused & active
