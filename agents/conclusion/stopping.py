"""When to stop a search, so that what it found can be told from noise."""

from __future__ import annotations

import math

from agents.conclusion.confirmation import checking_seconds, telling_seconds
from agents.conclusion.finalists import finalists_of
from agents.conclusion.last_look import seconds_left_in_all
from agents.core.base import Search


def lead_needs_time(search: Search) -> bool:
    """Return whether the lead of the best graph so far can be told from none in all the time that is left, and not in
    the part of it that the conclusion has if the search goes on. On a slow model, what further search finds would be
    lost with it."""
    left = seconds_left_in_all(search)
    finalists = finalists_of(search)
    if not finalists or math.isinf(left) or search.budget.provisional:
        return False
    first = finalists[0]
    needed = telling_seconds(first.latency, search.problem.cost(first.graph))
    own = left - max(0.0, search.allowed - search.seconds)
    own, left = (seconds - checking_seconds(search, first.graph, seconds) for seconds in (own, left))
    return own < needed <= left
