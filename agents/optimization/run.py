"""An optimisation from the first second to the last: open the model, search, conclude, measure with other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agents.conclusion.confirmation import judging_plan
from agents.conclusion.recordings import recording_or_none
from agents.core.base import Agent, Budget, OptimizationResult, Search
from agents.core.budget import check_seed
from agents.core.registry import make_agent
from agents.optimization.best_runtime import optimize_in_each
from agents.optimization.dynamic import for_all_shapes, seconds_for_all_shapes
from agents.optimization.options import AUTO, BEST, OptimizeOptions
from agents.optimization.other_threads import ByThreads, OtherThreads
from agents.optimization.outcome import Optimization
from agents.optimization.remembering import ResultRecall
from agents.optimization.single_shapes import ShapeResult, ShapeSearches, check_specialise, times_for_single_shapes
from agents.optimization.specialising import specialise
from agents.searching.known_starts import Start, StartingAgent
from agents.searching.mutants import add_mutants, check_mutants, mutant_store
from graph_rewrite.delivery.ship import UnmadeModel
from graph_rewrite.errors import UserError
from graph_rewrite.replay import Recording
from graph_rewrite.runtime import Deployment
from graph_rewrite.symbolic.bindings import DimensionBindings, bind
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import Problem, open_problem
from graph_rewrite.task.workspace import workspace

CONCLUSION_SHARE = 0.3
"""Share of the time limit that measuring, checking and writing the result may take."""
CONCLUSION_S = 90.0
"""Most seconds of it: a careful measurement takes no longer."""
TELLING_SHARE = 0.1
"""Share of the time limit that goes from the search to the conclusion where the lead is real but small."""
TELLING_S = 60.0
"""Most seconds of it."""
CHOOSING_SHARE, CHOOSING_S = 0.1, 30.0
"""Share of the time limit, and most seconds, for choosing what is carried over to all shapes. That is measured and
checked as it ships, and not before."""
WRITING_S = 0.5
"""Seconds of it that are left for writing the result, when the checks have come to their end."""
THREADS_SHARE = 0.1
"""Share of the time limit for measuring the result with each further number of threads, models of single shapes
included."""

Progress = Callable[[Search], None]


def optimize_model(
    path: Path,
    options: OptimizeOptions,
    *,
    began: float | None = None,
    reserved: float = 0.0,
    opened: Callable[[Problem], None] | None = None,
    progress: Progress | None = None,
    keep: Any = None,
) -> Optimization:
    """Search for a faster form of a model file, check it and measure it; nothing is written.

    Args:
        began: the time at which the time limit began, by `time.monotonic`; now by default.
        reserved: seconds of the time limit to leave for what the caller does afterwards.
        opened: called with the problem before the search begins.
        progress: called with the search as it goes on.
        keep: an object that must live as long as the outcome.

    Raises:
        UserError: a mistake in the options or the model.
        MachineError: the model cannot be measured here.
        KeyboardInterrupt: a limit around this one was brought forward, and passed before the model was open.
    """
    workspace()  # what is written on the way lies there, and goes with it
    began = time.monotonic() if began is None else began
    if options.provider != BEST:
        return _optimized(path, options, began, reserved, opened, progress, keep)
    watched = WatchedSearch(progress)
    return optimize_in_each(
        path, options, lambda own, since: _optimized(path, own, since, 0.0, opened, watched, keep), began=began,
        seconds=options.seconds - reserved, interrupted=lambda: watched.interrupted,
    )  # fmt: skip


def _optimized(
    path: Path,
    options: OptimizeOptions,
    began: float,
    reserved: float,
    opened: Callable[[Problem], None] | None,
    progress: Progress | None,
    keep: Any,
) -> Optimization:
    """Search in one runtime, as `optimize_model` does."""
    limit, (first, *others) = options.seconds - reserved, options.thread_counts
    # Mistakes in the agent's name, its options, the seed and the mutants show before the model is opened.
    agent, _ = make_agent(options.agent_spec), check_seed(options.seed)
    check_mutants(options.mutants, strict=options.strict)
    problem, bindings = _open(path, options, first, began + limit)
    if opened is not None:
        opened(problem)
    further = THREADS_SHARE * limit * len(others)
    general = seconds_for_all_shapes(bindings, options.static, limit)
    times = times_for_single_shapes(len(bindings.values) if options.specialise else 0, limit - further, general)
    last, watched = began + limit - further - WRITING_S, WatchedSearch(progress)
    ends = last - times.after - general
    provisional = general > 0.0 and not options.specialise
    chosen = searched(problem, agent, times.first(options), ends, watched, provisional=provisional)
    result, recording = chosen.result, chosen.recording
    at_first = ShapeResult(bindings.values[0], problem, result, recording)
    made = for_all_shapes(
        problem, result, bindings, static=options.static, deadline=ends + general, plan=judging_plan(general)
    )
    chosen.remember(made.result)
    if made.result.is_original and not result.is_original:
        recording = recording_or_none(problem, (), made.result.graph, options.rule_names)
    result, bundle = made.result, None
    if options.specialise:
        searches = ShapeSearches(
            options,
            lambda given, bound: open_with_threads(path, given, first, bound),
            lambda problem, given, until, starts: searched(
                problem, make_agent(given.agent_spec), given, until, watched, starts
            ).remembered(),
            lambda: watched.interrupted,
        )
        found_at = [at_first, *searches.run(bindings, at_first.recording, times, last - times.bundle)]
        bundle = specialise(problem, made, recording, found_at, bindings, last)
    by_threads: ByThreads = ()
    if others:
        measurements = OtherThreads(
            others, lambda count, bound: open_with_threads(path, options, count, bound), bindings, began + limit
        )
        own = bundle.own if bundle is not None else ()
        found, found_own = measurements.measure(result, own, static=options.static)
        by_threads = ((first, result.latency), *found)
        bundle = None if bundle is None else bundle.with_threads(first, found_own)
    return Optimization(options, problem, result, began, by_threads, recording, made.dynamic, bundle, keep)


def _open(path: Path, options: OptimizeOptions, threads: int, until: float) -> tuple[Problem, DimensionBindings]:
    """Open a model file as the problem that the options describe, and bind its symbolic dimensions."""
    try:
        with ending_at(until):
            bindings = bind(path, options.shape, Deployment(custom_ops=options.libraries))
            if options.specialise:
                bindings = check_specialise(options, bindings)
            return open_with_threads(path, options, threads, bindings), bindings
    except OutOfTime:
        if time.monotonic() < until:
            raise KeyboardInterrupt("the model is not open yet, and nothing is written") from None
        raise UserError(
            f"{path}: --time-limit {options.time_limit} is over before the model is open, and nothing is written: give"
            " more time"
        ) from None


class WatchedSearch:
    """Called with the progress of searches: passes it on, and knows the last search."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.search: Search | None = None

    def __call__(self, search: Search) -> None:
        self.search = search
        if self._progress is not None:
            self._progress(search)

    @property
    def interrupted(self) -> bool:
        """True where the user has ended the last search before its time."""
        return self.search is not None and self.search.ended and not self.search.cut_off


@dataclass(frozen=True, slots=True)
class Searched:
    """The outcome of `searched`."""

    result: OptimizationResult
    recording: Recording | None
    keep: Callable[[OptimizationResult], object] = lambda result: None
    """Remembers a result with this recording."""

    def remember(self, final: OptimizationResult) -> None:
        """Keep the result for later searches, with the latency of what was made of it where only that was measured
        with care."""
        judged = isinstance(self.result.checked, UnmadeModel) and not final.is_original
        kept = replace(self.result, latency=final.latency, checked=final.checked) if judged else self.result
        self.keep(kept)

    def remembered(self) -> tuple[OptimizationResult, Recording | None]:
        """Keep the result for later searches; return it with its recording."""
        self.remember(self.result)
        return self.result, self.recording


def searched(
    problem: Problem,
    agent: Agent,
    options: OptimizeOptions,
    ends: float,
    watched: WatchedSearch,
    known_starts: Sequence[Start] = (),
    *,
    provisional: bool = False,
) -> Searched:
    """Confirm the remembered result where there is one, or else search, beginning with it.

    Args:
        agent: the search method that the options name.
        ends: the time at which the result must be found and checked, by `time.monotonic`.
        watched: is called with the search as it goes on.
        known_starts: further graphs to begin with, for agents that can.
        provisional: the caller confirms and checks what a search finds, so that the search has that time too.
    """
    recall = ResultRecall(problem, options) if options.memory and options.agent_spec == AUTO else None
    starts = [] if recall is None else recall.starts()
    if recall is not None and not options.search_again:
        for start in [start for start in starts if start.is_enough(options.seconds)]:
            if (known := recall.confirmed(start, _budget(options, ends - recall.replaying_s), watched)) is not None:
                return Searched(known, recording_or_none(problem, known.actions, known.graph, options.rule_names))
    if recall is not None:
        starts += recall.shipped_starts(starts)
        ends -= recall.replaying_s  # to record the result takes about as long as to replay known ones
    if isinstance(agent, StartingAgent):
        agent.starts = [*starts, *known_starts]
    began = time.monotonic()
    budget = _budget(options, ends, provisional)
    store = mutant_store(problem) if options.memory else None
    said: list[str] = []
    add_mutants(
        problem,
        options.mutants,
        budget.seconds,
        watched,
        store=store,
        on_searched=lambda found: said.append(str(found)),
    )
    found = agent.optimize(problem, _budget(options, ends, provisional), seed=options.seed, progress=watched)
    result = found.remarked(*said)
    recording = recording_or_none(problem, result.actions, result.graph, options.rule_names)
    if recall is None:
        return Searched(result, recording)
    if watched.search is not None:
        recall.learn(starts, watched.search, result)
    seconds = time.monotonic() - began if watched.interrupted else options.seconds
    return Searched(result, recording, lambda kept: recall.remember(kept, recording, seconds, starts))


def _budget(options: OptimizeOptions, ends: float, provisional: bool = False) -> Budget:
    share, most = (CHOOSING_SHARE, CHOOSING_S) if provisional else (CONCLUSION_SHARE, CONCLUSION_S)
    conclusion = min(most, share * options.seconds)
    seconds = max(1.0, ends - conclusion - time.monotonic())
    telling = min(TELLING_S, TELLING_SHARE * options.seconds)
    return Budget(10**9, seconds, conclusion_s=conclusion, deadline=ends, telling_s=telling, provisional=provisional)


def open_with_threads(path: Path, options: OptimizeOptions, threads: int, bindings: DimensionBindings) -> Problem:
    """Open a model file as the problem that the options describe, for a number of threads."""
    problem = open_problem(
        f"file:{path}", provider=options.provider, threads=threads, rules=options.rule_names,
        deployment_choices=not options.fixed_deployment, shapes=bindings.shapes or None, cached=False,
        limits=options.limits, clock=options.clock_of(threads), target_opset=options.target_opset,
        thread_choices=options.thread_choices, strict=options.strict, input_data=options.input_data,
        custom_ops=options.libraries,
    )  # fmt: skip
    problem.external_weights = options.save_as_external_data
    return problem
