"""The end of every search: measure the most promising graphs with care, save and check the winner or the original."""

from __future__ import annotations

import math
import time
from contextlib import AbstractContextManager
from pathlib import Path

from agents.conclusion.confirmation import MARGIN, as_chosen, confirmed, not_confirmed, share_of_time, surely_faster
from agents.conclusion.finalists import is_undecided, measured_finalists, with_light
from agents.conclusion.fresh_process import FreshProcess
from agents.conclusion.last_look import concluded_at_once
from agents.conclusion.savings import measured_path
from agents.conclusion.size_tradeoff import TOO_LARGE, tradeoff
from agents.conclusion.users_file import asking_original, in_own_file
from agents.core.base import Action, OptimizationResult, Search, Visit
from graph_rewrite.delivery.deployed import deployment_of
from graph_rewrite.delivery.equivalence import Equivalence, equivalent
from graph_rewrite.delivery.ship import CheckedModel, checked_model, kept_original, unmade_model
from graph_rewrite.delivery.tolerance import default_tolerance
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, waited_seconds
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.system.deadline import Limit, OutOfTime, ending_at
from graph_rewrite.task.limits import priced
from graph_rewrite.task.problem import Problem

CHECKING_SHARE, SURE_CHECKING_SHARE = 0.5, 0.75
"""Part of the time left before a deadline that saving and comparing the most promising graph may take, and where it is
surely faster by what the search measured alone."""


def conclude(search: Search, agent: str) -> OptimizationResult:
    """Measure the best few with full effort and return the fastest that is surely faster and equal in its outputs.

    The most promising graph is saved, and the outputs of that file are compared with the original's. What is reported
    of it is then measured anew: its lead among many is partly luck. Where other load blurs the first measurements so
    much that none is surely faster, that second and longer one of the best decides, also where it does not seem to be
    faster and may be. The last look is at the latency of the file in a fresh process; where time is limited, the file
    is measured anew there at once. The next best follows where one of these fails. Where nothing wins, the result is
    the original's own file, and likewise where the winner has no rewrites and only its deployment gains. Where the
    budget has a deadline or an overtime, each part has its share of the time that is left; what is not sure by then is
    not kept. A graph that the search had no time to measure is measured and checked at once (`last_look`). A
    provisional budget ends with the choice: the most promising graph is returned, neither confirmed nor saved, unless
    it is the original under another deployment.
    """
    problem = search.problem
    seconds = search.elapsed

    def result(
        graph: Graph, latency: Latency, actions: tuple[Action, ...], checked: CheckedModel, message: str
    ) -> OptimizationResult:
        return OptimizationResult(
            agent, graph, latency, actions, checked, tuple(search.improvements), search.measurements,
            search.applications, seconds, message, tuple(search.growth), search.trials, search.rule_faults,
            tradeoff(search), measured_path(search.visits.values(), actions),
        )  # fmt: skip

    with _limited(search):
        measured = measured_finalists(search)
        known = {visit.graph.hash: latency for visit, latency in measured}
        promising, rejected = _promising(search, measured), list[str]()
        if search.proposed is not None:
            found = concluded_at_once(search, search.proposed, original_file(problem), _tolerance(problem))
            if not isinstance(found, str):
                latency, checked = found
                return result(search.proposed.graph, latency, search.proposed.actions, checked, checked.outcome.message)
            rejected.append(found)
        if search.budget.provisional and promising and asking_original(problem.model, promising[0].graph) is None:
            first = promising[0]
            latency = known[first.graph.hash]
            return result(first.graph, latency, first.actions, unmade_model(problem.model.path, problem.deployment), "")
        for visit in promising:
            try:
                handed = _confirmed_file(search, visit.graph, known[visit.graph.hash])
            except OutOfTime:
                rejected.append("no time was left to confirm and check the fastest")
                break
            if not isinstance(handed, str):
                latency, checked = handed
                return result(visit.graph, latency, visit.actions, checked, checked.outcome.message)
            rejected.append(handed)
        ms, checked = _original_ms(measured, search), original_kept(problem)
    message = kept_message(_reason(search, rejected), checked)
    return result(problem.model.original, Latency(ms, 1.0, (1.0, 1.0), 1, ms), (), checked, message)


def _confirmed_file(search: Search, graph: Graph, known: Latency) -> tuple[Latency, CheckedModel] | str:
    """Return a graph as a compared file with its latency, measured anew; the user's own file where that is as fast. Or
    return why it is not handed over.

    The comparison comes first: a measurement can end at any time, and how long a comparison takes is not known before.

    Raises:
        OutOfTime: the time limit is reached.
    """
    problem = search.problem
    share = SURE_CHECKING_SHARE if surely_faster(as_chosen(search, known)) else CHECKING_SHARE

    def keep(asking: Graph) -> CheckedModel:
        with share_of_time(share):
            return _own_file(problem, asking, unrun=False)

    own = in_own_file(search, graph, known, keep)
    if own is not None:
        return own
    with share_of_time(share):
        saved = saved_and_checked(problem, graph)
    if not saved.outcome.ok:
        return saved.outcome.message
    fresh = FreshProcess(problem, saved, original_file(problem))
    latency = confirmed(search, graph, known, fresh)
    if not surely_faster(latency):
        return not_confirmed(latency)
    if search.worth(graph, latency) <= 1.0:
        return TOO_LARGE
    return fresh.complaint() or (latency, saved)


def _limited(search: Search) -> AbstractContextManager[Limit]:
    budget = search.budget
    if budget.deadline is not None or budget.overtime_s is None:
        return ending_at(budget.deadline)
    unspent = budget.seconds - search.elapsed
    return ending_at(time.monotonic() + budget.overtime_s + max(search.lacking, unspent), waited_seconds)


def _reason(search: Search, rejected: list[str]) -> str:
    """Return why the original is kept."""
    trials = search.trials
    if rejected:
        reasons = list(dict.fromkeys(rejected))
    elif any(
        surely_faster(visit.latency) and search.worth(visit.graph, visit.latency) <= 1.0
        for visit in search.visits.values()
    ):
        reasons = [TOO_LARGE]
    elif trials.count > trials.failed:
        reasons = ["nothing was surely faster"]
    elif trials.count == 0 and search.cut_off:
        reasons = ["the time limit was reached before a candidate was measured"]
    else:
        reasons = [] if trials.failed else ["nothing was surely faster"]
    return "; ".join(filter(None, (*reasons, str(trials))))


def _promising(search: Search, measured: list[tuple[Visit, Latency]]) -> list[Visit]:
    """Return measured graphs that are worth a confirming measurement, in its order."""
    leading = [pair for pair in measured if priced(pair[1].speedup, search.price(pair[0].graph)) > 1.0]
    sure = [visit for visit, first in leading if surely_faster(first)]
    # One alone: of several doubtful ones some would pass by luck.
    hopeful = [visit for visit, first in leading if first.ok and first.speedup > 1.0 + MARGIN]
    doubtful = [visit for visit, _ in leading[:1] if visit in hopeful]
    if not doubtful and not search.budget.provisional:
        doubtful = [visit for visit, first in measured[:1] if is_undecided(search, visit.graph, first)]
    return with_light(search, sure or doubtful, hopeful)


def saved_and_checked(problem: Problem, graph: Graph) -> CheckedModel:
    """Save a graph and compare that file with the original, as it will be opened."""
    return checked_model(
        graph, original_file(problem), problem.deployment, workspace=problem.workspace, tolerance=_tolerance(problem),
        rtol=problem.limits.rtol, atol=problem.limits.atol, data=problem.data,
        external_weights=problem.external_weights,
    )  # fmt: skip


def kept_message(reason: str, checked: CheckedModel) -> str:
    """Return what is said of an original that is kept for a reason, and of a copy that does not agree with it."""
    message = f"the original is kept: {reason}"
    if checked.outcome.ok:
        return message
    return f"{message}; a copy of it does not agree with it and is not written: {checked.outcome.message}"


def original_kept(problem: Problem) -> CheckedModel:
    """Return the user's own file, to be run as usual."""
    return _own_file(problem, problem.model.original)


def _own_file(problem: Problem, original: Graph, unrun: bool = True) -> CheckedModel:
    """Return the user's own file, to be run as `original` asks."""
    model, deployment = problem.model, deployment_of(original, problem.deployment)
    # A tighter limit than rounding explains is for rewrites; the runtime's own optimisers need not keep it.
    tolerance = max(
        problem.limits.tolerance(model.original, problem.deployment),
        default_tolerance(model.original, problem.deployment),
    )
    runnable: Path | None = None
    try:
        runnable = original_file(problem)
    except OutOfTime:  # its weights are many; without them it cannot be run
        if not unrun:
            raise
    return kept_original(model.path, deployment, runnable=runnable, tolerance=tolerance, data=problem.data, unrun=unrun)


def check_outputs(search: Search, visit: Visit) -> Equivalence:
    """Compare a graph of a search with the original, from a file that shares its weights with other candidates.

    For searches that leave out rewrites which round too much; results are compared as they are saved.
    """
    problem = search.problem
    deployment = deployment_of(visit.graph, problem.deployment)
    optimised = materialize(visit.graph, problem.workspace)
    return equivalent(
        original_file(problem), optimised, deployment, tolerance=_tolerance(problem), rtol=problem.limits.rtol,
        atol=problem.limits.atol, data=problem.data,
    )  # fmt: skip


def _tolerance(problem: Problem) -> float:
    return problem.limits.tolerance(problem.model.original, problem.deployment)


def original_file(problem: Problem) -> Path:
    """The original as a file: the user's own, unless it leaves shapes open that were fixed for this problem."""
    model = problem.model
    return materialize(model.original, problem.workspace) if model.shapes else model.path


def _original_ms(measured: list[tuple[Visit, Latency]], search: Search) -> float:
    """Return the milliseconds of the original, from any measurement against it; NaN where no time is left for one."""
    known = [latency for _, latency in measured] + [visit.latency for visit in search.visits.values()]
    timed = [latency.baseline_ms for latency in known if latency.ok]
    if timed:
        return timed[0]
    try:
        return search.problem.measure(search.problem.model.original, "screen").ms
    except OutOfTime:
        return math.nan
