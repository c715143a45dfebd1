"""The conclusion of a search that had no time to measure what it found: the saved file is timed and compared at once.

A large model takes seconds to open and to warm up, and a usual conclusion does both three times: to measure, to compare
and to look at the saved file in a fresh process. Where the time limit does not allow that, the search proposes one
graph; its file is saved first, and one process measures and compares it.
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from agents.conclusion.confirmation import STEADY, surely_faster, told
from agents.conclusion.size_tradeoff import TOO_LARGE
from agents.core.base import SMALL_LEAD, Action, Search
from agents.core.records import ProposedGraph
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import CheckedModel, checked_model
from graph_rewrite.delivery.timed_comparison import timed_comparison
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import Deployment, Latency, OrtMeter
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left
from graph_rewrite.task.problem import Problem

USUAL_RUNS, DOUBTFUL_RUNS = 36.0, 72.0
"""Runs of the original that measuring a graph and a usual conclusion take, with their sessions; and where the gain is
so small that it has to be confirmed."""
FURTHER_RUNS = 14.0
"""The same for each further graph that is measured."""
USUAL_S_PER_GB = 6.0
"""Seconds for each GB of weights, which are written and read several times."""
OF_ROOFLINE = 0.5
"""Part of its roofline estimate that a run takes, before one was timed. In the middle of the zoo, one thread of a
Zen 4."""
HANDING_S, HANDING_S_PER_GB = 0.5, 1.0
"""Seconds that are kept to put the file in its place, and more for each GB of its weights."""
PLAN = replace(STEADY, instances=4, min_instances=1, min_pairs=4)
"""The plan of the measurement, but for the width of its interval."""
WIDTH, WIDEST = 0.8, 0.5
"""Width of the interval, as a part of the forecast gain, at which it is precise enough, and the largest."""


def roofline_seconds(problem: Problem) -> float:
    """Return the seconds of a run of the original by a count of operations and bytes."""
    graph = problem.model.graph
    return estimated_seconds(graph) / problem.deployment.threads


def lacks_time(search: Search, graph: Graph, gain: float = SMALL_LEAD, measurements: int = 1) -> bool:
    """Return whether no time is left to measure so many graphs and to conclude as usual, where the conclusion can do
    both at once.

    Args:
        graph: tells how many weights there are to be written and read.
        gain: share of the original's latency that it is forecast to save.
    """
    problem = search.problem
    if search.budget.provisional or not isinstance(problem.meter, OrtMeter):
        return False
    if search.visits or problem.thread_choices:
        return False
    runs = (USUAL_RUNS if gain >= SMALL_LEAD else DOUBTFUL_RUNS) + FURTHER_RUNS * (measurements - 1)
    usual = runs * OF_ROOFLINE * roofline_seconds(problem) + USUAL_S_PER_GB * weight_bytes(graph) / 1e9
    return seconds_left_in_all(search) < usual and not problem.violation(graph)


def seconds_left_in_all(search: Search) -> float:
    """Return the seconds that the search and its conclusion have left; infinite without a limit."""
    budget = search.budget
    if budget.deadline is not None:
        return budget.deadline - time.monotonic()
    return math.inf if budget.overtime_s is None else budget.seconds - search.elapsed + budget.overtime_s


def propose(search: Search, graph: Graph, actions: tuple[Action, ...], gain: float = SMALL_LEAD) -> None:
    """Leave it to the conclusion to measure a graph, and end the search."""
    search.proposed = ProposedGraph(graph, actions, gain)
    search.end()


def concluded_at_once(
    search: Search, proposed: ProposedGraph, original: Path, tolerance: float
) -> tuple[Latency, CheckedModel] | str:
    """Save the graph that a search proposes, and time and compare that file. Return why it is not handed over where it
    is not surely faster, or wrong.

    Args:
        original: the original, as a file that can be run.
        tolerance: the largest error of an output relative to its scale.
    """
    try:
        latency, checked = _timed_and_checked(search, proposed, original, tolerance)
    except OutOfTime:
        return "no time was left to measure and check a draft"
    if not surely_faster(latency):
        return f"a draft was not surely faster, {told(latency)}"
    if search.worth(proposed.graph, latency) <= 1.0:
        return TOO_LARGE
    return (latency, checked) if checked.outcome.ok else checked.outcome.message


def _timed_and_checked(
    search: Search, proposed: ProposedGraph, original: Path, tolerance: float
) -> tuple[Latency, CheckedModel]:
    problem, graph = search.problem, proposed.graph
    meter = problem.meter
    if not isinstance(meter, OrtMeter):
        raise TypeError(f"{type(meter).__name__} cannot time files, so nothing can be proposed with it")
    kept = HANDING_S + HANDING_S_PER_GB * weight_bytes(graph) / 1e9
    plan = replace(PLAN, target_ci_width=min(WIDEST, WIDTH * proposed.gain))
    timed: list[Latency] = []

    def compare(path: Path, deployment: Deployment) -> Equivalence:
        limited = replace(plan, budget_s=min(plan.budget_s, max(0.0, seconds_left())))
        latency, outcome = timed_comparison(
            meter, original, path, deployment, plan=limited, tolerance=tolerance, rtol=problem.limits.rtol,
            atol=problem.limits.atol, data=problem.data,
        )  # fmt: skip
        timed.append(latency)
        return outcome

    with ending_at(time.monotonic() + seconds_left() - kept):
        checked = checked_model(
            graph, original, problem.deployment, workspace=problem.workspace, compare=compare,
            external_weights=problem.external_weights,
        )  # fmt: skip
    return search.measure(graph, proposed.actions, timed[0]), checked
