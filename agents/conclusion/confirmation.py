"""Telling whether a graph is surely faster: measured anew, and where that leaves a doubt, again with the time left."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import NormalDist

from agents.conclusion.fresh_process import FreshProcess
from agents.core.base import Search
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import JUDGE, Latency, Plan
from graph_rewrite.latency.estimates import half_width, pooled, updated
from graph_rewrite.runtime import chance_of_telling, standard_error
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left

MARGIN = 0.005
"""A result is kept only where its 95% interval lies above 1 + MARGIN."""
MOST_LOOKS = 4
"""Most measurements that are put together for one graph: each further look is another chance to be lucky."""
CHECK_SHARE, CHECK_S, CHECK_RUNS, CHECK_S_PER_GB = 0.2, 3.0, 22.0, 6.0
"""Part of the time left that saving and comparing the winner keeps; and the seconds, or runs of the original with the
seconds for weights that are written once and read twice, that it keeps of a short time, but never more than half."""
PLACING_SHARE = 0.04
"""Part of the time left that is kept to put the file in its place."""
KEPT_OF_FORECAST, FORECAST_ERROR = 0.8, 0.5
"""Parts of what is forecast of a draft: that it keeps in the median, and the standard deviation of that. On models of
50 ms and more, on one thread of a Zen 4 (benchmarks/results/learning/drafts.json), without the largest outlier."""
_WARMING = 2  # Untimed runs of each session.
_FEWEST = 3  # Pairs of a measurement that tells anything.
_NORMAL = NormalDist()
AMPLE_S = 2.0 * JUDGE.budget_s
"""Seconds left with which a search without a deadline is confirmed as if there were no limit at all."""
STEADY = replace(JUDGE, instances=12, min_instances=4, min_pairs=11)
"""The plan of a measurement for which time is short: of eleven pairs two may be disturbed on either side and the median
still knows its error, of five not one (`median_standard_error`)."""


def surely_faster(latency: Latency) -> bool:
    """Return whether the 95% interval of the speed-up lies above 1 + MARGIN."""
    return latency.ok and latency.lower_bound > 1.0 + MARGIN


def told(latency: Latency) -> str:
    """Return a measurement in words that end a sentence about it."""
    if not latency.ok:
        return f"which failed: {latency.message}"
    low, high = latency.ci95
    return f"in which the speed-up was {latency.speedup:.3f} (95% interval {low:.3f} to {high:.3f})"


def not_confirmed(latency: Latency) -> str:
    """Return why a graph is not handed over that a measurement anew does not show to be faster."""
    return f"the fastest was not confirmed by a second measurement, {told(latency)}"


def is_doubtful(latency: Latency) -> bool:
    """Return whether a speed-up seems to be worth reporting, and is not sure."""
    return latency.ok and latency.speedup > 1.0 + MARGIN and not surely_faster(latency)


def confirmed(search: Search, graph: Graph, known: Latency | None, fresh: FreshProcess | None = None) -> Latency:
    """Measure a graph anew for the report, once its outputs are compared.

    With a deadline, a doubtful graph is measured again as long as time is left, and all these measurements count
    together. What the search measured counts too where a doubt is left, where it measured no other graph, and alone
    where there is no time for another measurement: with an interval so wide that it holds for all graphs that were
    measured at once, so that luck in the choice is not taken for a gain. What is measured then is the saved file in a
    fresh process, which needs no last look.

    Args:
        known: what the search measured of it; None where it did not.
        fresh: times the saved file; by default the graph is measured as the search does.

    Raises:
        OutOfTime: no measurement came to its end, and what the search measured leaves a doubt.
    """
    problem = search.problem
    left = seconds_left()
    if math.isinf(left) or (search.budget.deadline is None and left > AMPLE_S):
        return problem.confirm(graph, judging_plan(search.budget.conclusion_s))
    kept, others = PLACING_SHARE * left, _measured_graphs(search) - 1
    chosen = None if known is None else as_chosen(search, known)
    sure = chosen if chosen is not None and surely_faster(chosen) else None
    if sure is not None and left - kept < problem.cost(graph) + least_seconds(sure):
        return sure
    with ending_at(time.monotonic() + left - kept):
        try:
            latency = _measured(search, graph, fresh, 0)
        except OutOfTime:
            if sure is not None:
                return sure
            raise
        if chosen is not None and (not others or is_doubtful(latency)):
            latency = pooled(chosen, latency)
        for look in range(1, MOST_LOOKS):
            if not is_doubtful(latency):
                break
            try:
                latency = pooled(latency, _measured(search, graph, fresh, look))
            except OutOfTime:
                break
    return latency


def _measured(search: Search, graph: Graph, fresh: FreshProcess | None, look: int) -> Latency:
    """Return the latency of a graph, measured anew in the time that is left."""
    saved = None if fresh is None else fresh.latency(_plan())
    return search.problem.confirm(graph, _plan(), look) if saved is None else saved


def as_chosen(search: Search, known: Latency) -> Latency:
    """Return what a search measured of its winner, with an interval that holds although it was chosen among all."""
    return simultaneous(known, _measured_graphs(search))


def _measured_graphs(search: Search) -> int:
    return sum(bool(visit.actions) for visit in search.visits.values())


def needed_seconds(search: Search, graph: Graph, known: Latency, left: float) -> float:
    """Return the seconds that comparing a measured graph's outputs and confirming it take at least, of those left."""
    return checking_seconds(search, graph, left) + search.problem.cost(graph) + least_seconds(known)


def checking_seconds(search: Search, graph: Graph, left: float) -> float:
    """Return the seconds that saving and comparing a graph keeps of those that are left."""
    runs_s = CHECK_RUNS * search.original_s + CHECK_S_PER_GB * weight_bytes(graph) / 1e9
    return max(CHECK_SHARE * left, min(max(CHECK_S, runs_s), 0.5 * left))


def least_seconds(known: Latency) -> float:
    """Return the seconds that the runs of a steady measurement take at least, without its sessions."""
    return STEADY.min_pairs * (known.ms + known.baseline_ms) / 1e3


def chance_of_confirming(latency: Latency, seconds: float, opening_s: float, forecast: float = 0.0) -> float:
    """Return how likely a steady measurement in so many seconds confirms a lead, by a short measurement of it.

    Args:
        opening_s: seconds that opening a session of the graph, and one of the original, takes.
        forecast: share of the original's latency that the graph was forecast to save, which counts beside the
            measurement; 0.0 where nothing was.
    """
    half, pair_s = half_width(latency), (latency.ms + latency.baseline_ms) / 1e3
    pairs = min(float(STEADY.min_pairs), (seconds - opening_s) / pair_s - _WARMING) if latency.ok else 0.0
    if pairs < _FEWEST or not 0.0 < half < math.inf:
        return 0.0
    blocks = min(STEADY.instances, int(seconds / (opening_s + (pairs + _WARMING) * pair_s)))
    lead, error = math.log(latency.speedup), standard_error(half)
    if forecast > 0.0:
        lead, error = updated(KEPT_OF_FORECAST * forecast, FORECAST_ERROR * forecast, lead, error)
    return chance_of_telling(lead - math.log1p(MARGIN), error, half, latency.runs, max(1, blocks), int(pairs))


def simultaneous(latency: Latency, count: int) -> Latency:
    """Return a latency with an interval that holds for `count` such measurements at once, and so for the one that was
    chosen among them (Bonferroni's inequality; Dunn, "Multiple comparisons among means", Journal of the American
    Statistical Association 56, 1961)."""
    half = half_width(latency)
    if count <= 1 or not latency.ok or not half < math.inf:
        return latency
    half *= _NORMAL.inv_cdf(1.0 - 0.025 / count) / _NORMAL.inv_cdf(0.975)
    return replace(latency, ci95=(latency.speedup * math.exp(-half), latency.speedup * math.exp(half)))


def _plan() -> Plan:
    """Return the plan of a measurement that may take all of the time that is left."""
    return replace(STEADY, budget_s=min(STEADY.budget_s, max(0.0, seconds_left())))


def compared_again(search: Search, leader: Graph, rival: Graph) -> Latency | None:
    """Return the speed-up of one finalist over another, timed in turn in the time that is left for it; None where the
    meter cannot compare two graphs."""
    plan = replace(STEADY, min_instances=1, min_pairs=9, instances=4, budget_s=max(0.0, seconds_left()))
    compared = search.problem.compare(leader, rival, plan)
    return None if compared is None else compared[0]


def over(latency: Latency, ratio: Latency, *, inverse: bool = False) -> Latency:
    """Return what is known of a graph from a measurement of another one and their ratio.

    Args:
        latency: of the other graph.
        ratio: the speed-up of the graph over the other one.
        inverse: it is that of the other one over the graph.
    """
    if not latency.ok:
        return latency
    times = 1.0 / ratio.speedup if inverse else ratio.speedup
    half, speedup = math.hypot(half_width(latency), half_width(ratio)), latency.speedup * times
    return replace(
        latency, ms=latency.ms / times, speedup=speedup,
        ci95=(speedup * math.exp(-half), speedup * math.exp(half)),
    )  # fmt: skip


def judging_plan(seconds: float | None) -> Plan:
    """Return the plan of the measurement that a result is reported with, in a conclusion of so many seconds: half of
    them, and no more than `JUDGE` takes."""
    return JUDGE if seconds is None else replace(JUDGE, budget_s=min(JUDGE.budget_s, seconds / 2))


@contextmanager
def share_of_time(share: float) -> Iterator[None]:
    """Limit what runs inside to a share of the time that is left, where that is limited."""
    left = seconds_left()
    with ending_at(None if math.isinf(left) else time.monotonic() + share * left):
        yield
