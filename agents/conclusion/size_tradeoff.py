"""The trade-off of a search: how fast a model gets for how many weights."""

from __future__ import annotations

from agents.core.base import Search
from agents.core.records import SizedSpeedup
from graph_rewrite.ir.memory import weight_bytes

SIZES = (1.0, 1.25, 2.0, 5.0)
"""Multiples of the original's weights."""
TOO_LARGE = "the fastest saves too little for the weights that it adds (--size-price)"
"""What is said where the price of added weights keeps the original."""
TOLERANCE = 0.005
"""Growth that counts as none: constants that rewrites bring in."""


def tradeoff(search: Search) -> tuple[SizedSpeedup, ...]:
    """Return the best measured graph, by the lower bound of its screened speed-up, within each multiple in `SIZES` of
    the original's weights; a speed-up of 1 where nothing was faster."""
    original = search.problem.model.original
    before = weight_bytes(original)
    best = [SizedSpeedup(size, 1.0, (1.0, 1.0), before) for size in SIZES]
    for visit in search.visits.values():
        if not visit.actions or not visit.latency.ok or visit.latency.lower_bound <= 1.0:
            continue
        weights = weight_bytes(visit.graph)
        for i, size in enumerate(SIZES):
            if weights <= before * (size + TOLERANCE) and visit.latency.lower_bound > best[i].ci95[0]:
                best[i] = SizedSpeedup(size, visit.latency.speedup, visit.latency.ci95, weights)
    return tuple(best)
