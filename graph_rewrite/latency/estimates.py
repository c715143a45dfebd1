"""Latencies out of the timings of a worker."""

from __future__ import annotations

import math
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


def half_width(latency: Latency) -> float:
    """Return the half-width of the 95% interval, on the scale of logarithms."""
    low, high = latency.ci95
    return math.log(high / low) / 2 if 0.0 < low <= high < math.inf else math.inf


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


def updated(expected: float, spread: float, measured: float, error: float) -> tuple[float, float]:
    """Return what is known of a quantity after a measurement, and its standard deviation: the mean of a forecast and
    the measurement by the inverse of their variances (Gelman et al., Bayesian Data Analysis, 3rd edition, section 2.5).

    Args:
        expected: the forecast.
        spread: its standard deviation.
        measured: the measurement.
        error: its standard deviation; where that is infinite, the forecast stays as it is.
    """
    if not error < math.inf:
        return expected, spread
    weight = spread**2 / (spread**2 + error**2)
    return expected + weight * (measured - expected), spread * math.sqrt(1.0 - weight)


def pooled(one: Latency, other: Latency) -> Latency:
    """Put two independent measurements of a graph together, on the scale of logarithms, by the inverse of their
    variances; a failed one decides. Where they contradict each other, the interval grows until it holds both (after
    Birge, "The calculation of errors by the method of least squares", Physical Review 40, 1932)."""
    if not one.ok or not other.ok:
        return other if one.ok else one
    halves = [half_width(latency) for latency in (one, other)]
    if not all(0.0 < half < math.inf for half in halves):
        return min(one, other, key=lambda latency: latency.ci95[1] - latency.ci95[0])
    weights = [half**-2 / sum(h**-2 for h in halves) for half in halves]
    means = [math.log(latency.speedup) for latency in (one, other)]
    mean = sum(weight * value for weight, value in zip(weights, means, strict=True))
    excess = max(1.0, math.sqrt(2.0) * abs(means[0] - means[1]) / math.hypot(*halves))
    half = excess / math.sqrt(sum(h**-2 for h in halves))
    return Latency(
        ms=weights[0] * one.ms + weights[1] * other.ms,
        speedup=math.exp(mean),
        ci95=(math.exp(mean - half), math.exp(mean + half)),
        runs=one.runs + other.runs,
        baseline_ms=weights[0] * one.baseline_ms + weights[1] * other.baseline_ms,
    )
