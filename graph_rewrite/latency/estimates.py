"""Latencies out of the timings of a worker."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from graph_rewrite.latency.meter import Latency
from graph_rewrite.runtime import Block, estimate

DISTURBED = 0.25
"""Width of the 95% interval, relative to the speed-up, above which something else must have run on the machine: one
pair of quiet sessions gives 0.07."""
_TO_MS = 1e3


def interval_width(latency: Latency) -> float:
    """Return the width of the 95% interval, relative to the speed-up."""
    low, high = latency.ci95
    return (high - low) / latency.speedup


def is_torn(latency: Latency) -> bool:
    """Tell whether other load on the machine tore the interval apart, of a graph that may still be faster."""
    return latency.ok and interval_width(latency) > DISTURBED and latency.ci95[1] > 1.0


def latency_of(timings: Sequence[tuple[list[float], list[float], int]], *, identical: bool) -> Latency:
    """Return the latency that blocks of timings give: seconds of the baseline, of the candidate, and runs per timing.

    Args:
        identical: the two sides are the same model, run alike.
    """
    blocks = [Block(tuple(baseline), tuple(candidate), repeats) for baseline, candidate, repeats in timings]
    found = estimate(blocks)
    ms = _TO_MS * median(seconds for block in blocks for seconds in block.candidate)
    baseline_ms = _TO_MS * median(seconds for block in blocks for seconds in block.baseline)
    speedup, interval = found.speedup, (found.low, found.high)
    if identical:
        # Where the two differ, the machine stalled during one of them.
        speedup, interval, ms = 1.0, (1.0, 1.0), min(ms, baseline_ms)
        baseline_ms = ms
    runs = sum(len(block.candidate) * block.repeats for block in blocks)
    return Latency(ms=ms, speedup=speedup, ci95=interval, runs=runs, baseline_ms=baseline_ms)
