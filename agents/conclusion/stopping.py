"""When to stop a search, so that what it found can be told from noise."""

from __future__ import annotations

import math
from dataclasses import replace

from agents.conclusion.confirmation import STEADY, chance_of_confirming, checking_seconds
from agents.conclusion.finalists import MEASURING_SHARE, finalists_of
from agents.conclusion.last_look import seconds_left_in_all
from agents.conclusion.racing import confirmed
from agents.core.base import Search, Visit
from graph_rewrite.latency import unblocked_time
from graph_rewrite.latency.estimates import pooled

LIKELY = 0.4
"""Chance to confirm a lead from which on a search stops for it. Below that, only a larger gain would help."""
FURTHER = 0.1
"""What further search adds to a lead, as a part of it. Of 52 searches of a minute on models of 0.1 s and more that
were drafted (Zen 3), 34 added nothing after 22 s, and all of them a tenth on average; 19 of 44 leads of 2% to 10% were
not confirmed in the end."""
AGAIN_SHARE = 0.25
"""Part of the search's own time left in which a lead is measured once more, before the search stops for it."""


def lead_needs_time(search: Search) -> bool:
    """Return whether the lead of the best graph so far is worth all the time that is left: to confirm it is likely
    then, and clearly less likely in the part that the conclusion has if the search goes on. On a slow model, what
    further search finds would be lost with it. A lead is measured once more before that is said of it: the best of a
    few is often luck, and the search would stop for nothing.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    while (lead := _needing(search)) is not None:
        if lead.again_s:
            return True
        _measure_again(search, lead)
    return False


def _needing(search: Search) -> Visit | None:
    """Return the best graph so far, where its lead needs all the time that is left; None where it does not."""
    left = seconds_left_in_all(search)
    finalists = finalists_of(search)
    if not finalists or math.isinf(left) or search.budget.provisional:
        return None
    first, opening_s = finalists[0], _opening_seconds(search, finalists[0])
    own = left - max(0.0, search.allowed - search.seconds)
    going_on, stopping = (
        chance_of_confirming(first.latency, _confirming_seconds(search, first, seconds), opening_s, first.forecast)
        for seconds in (own, left)
    )
    return first if stopping >= LIKELY and going_on * (1.0 + FURTHER) < stopping else None


def _opening_seconds(search: Search, visit: Visit) -> float:
    """Return the seconds that a measurement of a graph took beside its timed runs."""
    latency = visit.latency
    timed_s = latency.runs * (latency.ms + latency.baseline_ms) / 1e3
    return max(0.0, search.problem.cost(visit.graph) + visit.again_s - timed_s) / (2 if visit.again_s else 1)


def _confirming_seconds(search: Search, visit: Visit, seconds: float) -> float:
    """Return the seconds of a conclusion that it has to confirm a graph, once finalists are chosen and the file is
    compared."""
    return (1.0 - MEASURING_SHARE) * seconds - checking_seconds(search, visit.graph, seconds)


def _measure_again(search: Search, visit: Visit) -> None:
    """Measure a graph once more, and keep in the search what both measurements say of it together."""
    began, budget_s = unblocked_time(), max(0.0, AGAIN_SHARE * (search.allowed - search.seconds))
    plan = replace(STEADY, min_instances=1, instances=4, budget_s=min(STEADY.budget_s, budget_s))
    latency = pooled(visit.latency, confirmed(search, visit.graph, plan))
    again_s = max(unblocked_time() - began, 1e-3)
    search.visits[visit.graph.hash] = replace(visit, latency=latency, again_s=again_s)
