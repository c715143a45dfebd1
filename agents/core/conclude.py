"""How every search ends: the most promising graphs measured with care, the winner checked, or else the original."""

from __future__ import annotations

from agents.core.base import OptimizationResult, Search, Visit
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.latency import JUDGE, Latency
from graph_rewrite.onnx_files.saving import materialize

FINALISTS = 3
"""How many of the best screened graphs are measured with full effort: by the lower ends of their intervals."""
MARGIN = 0.005
"""A result is kept only where its 95% interval lies above 1 + MARGIN."""


def conclude(search: Search, agent: str) -> OptimizationResult:
    """Measure the best few with full effort and return the fastest that is surely faster and equal in its outputs.

    What is reported of the winner is measured anew: its lead among many is partly luck. Where other load blurs the
    first measurements so much that none is surely faster, that second and longer one of the best decides.
    """
    problem = search.problem
    improvements, seconds = tuple(search.improvements), search.seconds
    measured = [(visit, problem.measure(visit.graph, "full")) for visit in _finalists(search)]
    rejected = []
    ranked = _ranked(search, measured)
    sure = [visit for visit, first in ranked if surely_faster(first)]
    # One alone: of several doubtful ones some would pass by luck.
    doubtful = [visit for visit, first in ranked[:1] if first.ok and first.speedup > 1.0 + MARGIN]
    for visit in sure or doubtful:
        latency = problem.confirm(visit.graph, JUDGE)
        if not surely_faster(latency):
            rejected.append("the fastest was not confirmed by a second measurement")
            continue
        check = check_outputs(search, visit)
        if check.ok:
            return OptimizationResult(
                agent, visit.graph, latency, visit.actions, improvements, search.measurements, search.applications,
                seconds, True, check.max_rel_error, check.message, tuple(search.growth),
            )  # fmt: skip
        rejected.append(check.message)
    reason = "; ".join(rejected) or "nothing was surely faster"
    ms = _original_ms(measured, search)
    return OptimizationResult(
        agent, problem.model.original, Latency(ms, 1.0, (1.0, 1.0), 1, ms), (), improvements, search.measurements,
        search.applications, seconds, True, 0.0, f"the original is kept: {reason}", tuple(search.growth),
    )  # fmt: skip


def _finalists(search: Search) -> list[Visit]:
    """The best screened graphs. The last of them is the one with the fewest rewrites among those that may be as fast as
    the first: what was added to it may be luck."""
    found = [visit for visit in search.visits.values() if visit.actions and visit.latency.ok]
    found = sorted((v for v in found if v.latency.speedup > 1.0), key=lambda visit: -visit.latency.lower_bound)
    rest = [visit for visit in found[FINALISTS - 1 :] if visit.latency.ci95[1] > found[0].latency.lower_bound]
    return found[: FINALISTS - 1] + sorted(rest, key=lambda visit: len(visit.actions))[:1]


def _ranked(search: Search, measured: list[tuple[Visit, Latency]]) -> list[tuple[Visit, Latency]]:
    """Fastest first: by what each surely gains over the original, and the first such that none of the others was faster
    than it when both ran in turn."""
    ranked = sorted(measured, key=lambda pair: -pair[1].lower_bound)
    for challenger in ranked[1:]:
        compared = search.problem.compare(ranked[0][0].graph, challenger[0].graph)
        if compared is not None and compared[0].ok and compared[0].speedup > 1.0:
            ranked = [challenger, *(pair for pair in ranked if pair is not challenger)]
    return ranked


def surely_faster(latency: Latency) -> bool:
    """Whether the 95% interval of the speed-up lies above 1 + MARGIN."""
    return latency.ok and latency.lower_bound > 1.0 + MARGIN


def check_outputs(search: Search, visit: Visit) -> Equivalence:
    """Original without any optimisation against the optimised model as it will be deployed."""
    problem = search.problem
    model = problem.model
    # The file itself, unless it leaves shapes open that were fixed for this problem.
    original = materialize(model.original, problem.workspace) if model.shapes else model.path
    optimised = materialize(visit.graph, problem.workspace)
    deployment = problem.deployment.with_disabled(visit.graph.disabled_optimizers)
    tolerance = problem.limits.tolerance(model.original, problem.deployment)
    return equivalent(original, optimised, deployment, tolerance=tolerance)


def _original_ms(measured: list[tuple[Visit, Latency]], search: Search) -> float:
    """Milliseconds of the original, from any measurement against it."""
    known = [latency for _, latency in measured] + [visit.latency for visit in search.visits.values()]
    timed = [latency.baseline_ms for latency in known if latency.ok]
    return timed[0] if timed else search.problem.measure(search.problem.model.original, "screen").ms
