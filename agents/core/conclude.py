"""The end of every search: measure the most promising graphs with care, save and check the winner or the original."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from agents.core.base import Action, OptimizationResult, Search, Visit
from graph_rewrite.delivery.deployed import deployment_of
from graph_rewrite.delivery.equivalence import Equivalence, default_tolerance, equivalent
from graph_rewrite.delivery.ship import CheckedModel, checked_model
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import JUDGE, Latency, Plan
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.task.problem import Problem

FINALISTS = 3
"""Number of screened graphs that are measured with full effort: those with the highest lower bounds."""
MARGIN = 0.005
"""A result is kept only where its 95% interval lies above 1 + MARGIN."""


def conclude(search: Search, agent: str) -> OptimizationResult:
    """Measure the best few with full effort and return the fastest that is surely faster and equal in its outputs.

    What is reported of the winner is measured anew: its lead among many is partly luck. Where other load blurs the
    first measurements so much that none is surely faster, that second and longer one of the best decides. The winner is
    saved, and that file is compared with the original; so is a copy of the original where nothing wins.
    """
    problem = search.problem
    improvements, seconds = tuple(search.improvements), search.elapsed
    judge = judging_plan(search.budget.conclusion_s)

    def result(
        graph: Graph, latency: Latency, actions: tuple[Action, ...], checked: CheckedModel, message: str
    ) -> OptimizationResult:
        return OptimizationResult(
            agent, graph, latency, actions, checked, improvements, search.measurements, search.applications, seconds,
            message, tuple(search.growth), search.rule_faults,
        )  # fmt: skip

    measured = [(visit, problem.measure(visit.graph, "full")) for visit in _finalists(search)]
    rejected = []
    for visit in _promising(search, measured):
        latency = problem.confirm(visit.graph, judge)
        if not surely_faster(latency):
            rejected.append("the fastest was not confirmed by a second measurement")
            continue
        checked = _saved(problem, visit.graph)
        if checked.outcome.ok:
            return result(visit.graph, latency, visit.actions, checked, checked.outcome.message)
        rejected.append(checked.outcome.message)
    original = problem.model.original
    ms, checked = _original_ms(measured, search), _saved(problem, original)
    message = f"the original is kept: {'; '.join(rejected) or 'nothing was surely faster'}"
    if not checked.outcome.ok:
        message += f"; a copy of it does not agree with it and is not written: {checked.outcome.message}"
    return result(original, Latency(ms, 1.0, (1.0, 1.0), 1, ms), (), checked, message)


def judging_plan(seconds: float | None) -> Plan:
    """Return the plan of the measurement that a result is reported with, in a conclusion of so many seconds: half of
    them, and no more than `JUDGE` takes."""
    return JUDGE if seconds is None else replace(JUDGE, budget_s=min(JUDGE.budget_s, seconds / 2))


def _promising(search: Search, measured: list[tuple[Visit, Latency]]) -> list[Visit]:
    """Measured graphs that are worth a confirming measurement, in its order."""
    ranked = _ranked(search, measured)
    sure = [visit for visit, first in ranked if surely_faster(first)]
    # One alone: of several doubtful ones some would pass by luck.
    return sure or [visit for visit, first in ranked[:1] if first.ok and first.speedup > 1.0 + MARGIN]


def _saved(problem: Problem, graph: Graph) -> CheckedModel:
    """Save a graph and compare that file with the original, as it will be opened."""
    model = problem.model
    tolerance = problem.limits.tolerance(model.original, problem.deployment)
    if graph is model.original:
        # A tighter limit than rounding explains is for rewrites; the runtime's own optimisers need not keep it.
        tolerance = max(tolerance, default_tolerance(graph, problem.deployment))
    return checked_model(
        graph, _original_file(problem), problem.deployment, workspace=problem.workspace, tolerance=tolerance
    )


def _finalists(search: Search) -> list[Visit]:
    """Return the best screened graphs. The last of them is the one with the fewest rewrites among those that may be as
    fast as the first: what was added to it may be luck."""
    found = [visit for visit in search.visits.values() if visit.actions and visit.latency.ok]
    found = sorted((v for v in found if v.latency.speedup > 1.0), key=lambda visit: -visit.latency.lower_bound)
    rest = [visit for visit in found[FINALISTS - 1 :] if visit.latency.ci95[1] > found[0].latency.lower_bound]
    return found[: FINALISTS - 1] + sorted(rest, key=lambda visit: len(visit.actions))[:1]


def _ranked(search: Search, measured: list[tuple[Visit, Latency]]) -> list[tuple[Visit, Latency]]:
    """Return the graphs, fastest first: by the lower bound of their gain over the original, and the first such that
    none of the others was faster than it when both ran in turn."""
    ranked = sorted(measured, key=lambda pair: -pair[1].lower_bound)
    for challenger in ranked[1:]:
        compared = search.problem.compare(ranked[0][0].graph, challenger[0].graph)
        if compared is not None and compared[0].ok and compared[0].speedup > 1.0:
            ranked = [challenger, *(pair for pair in ranked if pair is not challenger)]
    return ranked


def surely_faster(latency: Latency) -> bool:
    """Return whether the 95% interval of the speed-up lies above 1 + MARGIN."""
    return latency.ok and latency.lower_bound > 1.0 + MARGIN


def check_outputs(search: Search, visit: Visit) -> Equivalence:
    """Compare a graph of a search with the original, from a file that shares its weights with other candidates.

    For searches that leave out rewrites which round too much; results are compared as they are saved.
    """
    problem = search.problem
    deployment = deployment_of(visit.graph, problem.deployment)
    tolerance = problem.limits.tolerance(problem.model.original, problem.deployment)
    optimised = materialize(visit.graph, problem.workspace)
    return equivalent(_original_file(problem), optimised, deployment, tolerance=tolerance)


def _original_file(problem: Problem) -> Path:
    """The original as a file: the user's own, unless it leaves shapes open that were fixed for this problem."""
    model = problem.model
    return materialize(model.original, problem.workspace) if model.shapes else model.path


def _original_ms(measured: list[tuple[Visit, Latency]], search: Search) -> float:
    """Return the milliseconds of the original, from any measurement against it."""
    known = [latency for _, latency in measured] + [visit.latency for visit in search.visits.values()]
    timed = [latency.baseline_ms for latency in known if latency.ok]
    return timed[0] if timed else search.problem.measure(search.problem.model.original, "screen").ms
