"""When to stop a search, so that what it found can be told from noise."""

from __future__ import annotations

import math
from dataclasses import replace

from agents.conclusion.confirmation import STEADY, checking_seconds, telling_seconds
from agents.conclusion.finalists import finalists_of
from agents.conclusion.last_look import seconds_left_in_all
from agents.core.base import Search, Visit
from graph_rewrite.latency import unblocked_time
from graph_rewrite.latency.estimates import pooled

AGAIN_SHARE = 0.25
"""Part of the search's own time left in which a lead is measured once more, before the search stops for it."""


def lead_needs_time(search: Search) -> bool:
    """Return whether the lead of the best graph so far can be told from none in all the time that is left, and not in
    the part of it that the conclusion has if the search goes on. On a slow model, what further search finds would be
    lost with it. A lead is measured once more before that is said of it: the best of a few is often luck, and the
    search would stop for nothing.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    while (lead := _telling(search)) is not None:
        if lead.again_s:
            return True
        _measure_again(search, lead)
    return False


def _telling(search: Search) -> Visit | None:
    """Return the best graph so far, where its lead needs all the time that is left; None where it does not."""
    left = seconds_left_in_all(search)
    finalists = finalists_of(search)
    if not finalists or math.isinf(left) or search.budget.provisional:
        return None
    first = finalists[0]
    needed = telling_seconds(first.latency, search.problem.cost(first.graph) + first.again_s)
    own = left - max(0.0, search.allowed - search.seconds)
    own, left = (seconds - checking_seconds(search, first.graph, seconds) for seconds in (own, left))
    return first if own < needed <= left else None


def _measure_again(search: Search, visit: Visit) -> None:
    """Measure a graph once more, and keep in the search what both measurements say of it together."""
    began, budget_s = unblocked_time(), max(0.0, AGAIN_SHARE * (search.allowed - search.seconds))
    plan = replace(STEADY, min_instances=1, instances=4, budget_s=min(STEADY.budget_s, budget_s))
    latency = pooled(visit.latency, search.problem.confirm(visit.graph, plan))
    again_s = max(unblocked_time() - began, 1e-3)
    search.visits[visit.graph.hash] = replace(visit, latency=latency, again_s=again_s)
