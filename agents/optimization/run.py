"""An optimisation from the first second to the last: open the model, search, conclude, measure with other threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agents.core.base import Budget, OptimizationResult, Search
from agents.core.recordings import recording_or_none, write_recording
from agents.core.registry import make_agent
from agents.core.starts import StartingAgent
from agents.core.telling import judging_plan
from agents.optimization.dynamic import for_all_shapes, measure_at, seconds_for_all_shapes
from agents.optimization.options import AUTO, OptimizeOptions
from agents.optimization.remembering import ResultRecall
from agents.reporting.progress import baseline_ms
from agents.reporting.runs import result_entry
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Deployment, Latency
from graph_rewrite.replay import Recording
from graph_rewrite.runtime import open_session
from graph_rewrite.symbolic.bindings import DimensionBindings, bind
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import Problem, open_problem

CONCLUSION_SHARE = 0.3
"""Share of the time limit that measuring, checking and writing the result may take."""
CONCLUSION_S = 90.0
"""Most seconds of it: a careful measurement takes no longer."""
TELLING_SHARE = 0.1
"""Share of the time limit that goes from the search to the conclusion where the lead is real but small."""
TELLING_S = 60.0
"""Most seconds of it."""
WRITING_S = 0.5
"""Seconds of it that are left for writing the result, when the checks have come to their end."""
THREADS_SHARE = 0.1
"""Share of the time limit for measuring the result with each further number of threads."""

SUMMARY = (
    "model", "speedup", "speedup_ci95", "baseline_ms", "latency_ms", "verified", "max_rel_error", "deployment",
    "threads", "seconds", "measurements", "onnx_path", "message", "warnings", "memory", "rule_faults",
    "failed_measurements", "first_error", "tradeoff", "savings", "actions", "improvements", "dynamic",
)  # fmt: skip
"""Fields of a result's entry that `--json` prints."""

BUSY = (
    "the machine is busy with other things, so times are those that the thread itself computes; on a quiet machine the"
    " time that passes is measured"
)
"""Said where the clock was changed for that reason."""

Progress = Callable[[Search], None]


@dataclass(frozen=True, slots=True)
class Optimization:
    """A finished optimisation: the problem, the result of the search, and what else was found out about it."""

    options: OptimizeOptions
    problem: Problem
    result: OptimizationResult
    began: float
    """The time at which the time limit began, by `time.monotonic`."""
    by_threads: tuple[tuple[int, Latency], ...] = ()
    """The result's latency with each number of threads that was asked for; empty where only one was."""
    recording: Recording | None = None
    """The rewrites, as `rewritegym apply` takes them; None where they lead to the result by something else."""
    dynamic: Mapping[str, Any] = field(default_factory=dict)
    """What became of the model's symbolic dimensions; empty for static models."""
    kept: Any = None
    """Whatever must live as long as the outcome, such as the folder of a model that came without a file."""

    @property
    def speedup(self) -> float:
        """Latency of the original over that of the result."""
        return self.result.latency.speedup

    @property
    def speedup_ci95(self) -> tuple[float, float]:
        """The 95% confidence interval of the speed-up."""
        return self.result.latency.ci95

    @property
    def verified(self) -> bool:
        """True where the saved file agrees with the original, opened as it will be deployed."""
        return self.result.verified

    @property
    def deployment(self) -> Deployment:
        """Provider, threads and session options that the result was measured with."""
        return self.result.checked.deployment

    def session(self) -> Any:
        """Return an `onnxruntime.InferenceSession` on the result, opened as it was measured."""
        return open_session(self.result.checked.path, self.deployment)

    def to_json(self) -> dict[str, Any]:
        """Return what `rewritegym optimize --json` prints, without a file."""
        return self.summary(None)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences about what a user should know before deploying the result."""
        slower = tuple(
            f"with {threads} thread(s) the result is slower than the original: "
            f"x{latency.speedup:.3f} ({latency.ci95[0]:.3f} to {latency.ci95[1]:.3f})"
            if latency.ok
            else f"with {threads} thread(s) the result cannot be measured: {latency.message}"
            for threads, latency in self.by_threads
            if not latency.ok or latency.ci95[1] < 1.0
        )
        own = getattr(self.problem.meter, "clock", self.options.clock) != self.options.clock
        return (*slower, BUSY) if own else slower

    def save(self, output: Path | str) -> Path | None:
        """Write the checked file, and its recorded actions beside it; None where the check failed. An original that is
        kept is copied byte by byte."""
        if not self.verified:
            return None
        written = self.result.checked.write_to(Path(output))
        write_recording(self.recording, written)
        return written

    def entry(self, written: Path | None) -> dict[str, Any]:
        """Return everything that is known of the result, as JSON; `written` is the file that holds it."""
        entry = result_entry(self.result, self.problem, written)
        entry["seconds"] = round(time.monotonic() - self.began, 1)
        entry["model"] = self.problem.model.uri
        entry["baseline_ms"] = baseline_ms(entry)
        entry["threads"] = [
            {
                "threads": count,
                "speedup": found.speedup,
                "speedup_ci95": list(found.ci95),
                "latency_ms": found.to_json()["ms"],
            }
            for count, found in self.by_threads
        ]
        entry["warnings"] = list(self.warnings)
        entry["actions"] = None if self.recording is None else self.recording.to_json()
        entry["dynamic"] = dict(self.dynamic)
        return entry

    def summary(self, written: Path | None, entry: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return the part of `entry` that scripts read: the object that `--json` prints."""
        entry = self.entry(written) if entry is None else entry
        rewrites = [
            {"rule": r["rule"], "where": r["description"], "sites": r["sites"], "saved_ms": r["saved_ms"]}
            for r in entry["rewrites"]
        ]
        return {**{key: entry[key] for key in SUMMARY}, "rewrites": rewrites}


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
    """
    began = time.monotonic() if began is None else began
    limit, (first, *others) = options.seconds - reserved, options.thread_counts
    make_agent(options.agent_spec)  # a mistake in its name or options shows before the model is opened
    try:
        with ending_at(began + limit):
            bindings = bind(path, options.shape)
            problem = open_with_threads(path, options, first, bindings)
    except OutOfTime:
        raise UserError(f"--time-limit {options.time_limit} is over before the model is open: give more") from None
    if opened is not None:
        opened(problem)
    further = THREADS_SHARE * limit * len(others)
    general = seconds_for_all_shapes(bindings, options.static, limit)
    ends = began + limit - further - general - WRITING_S
    result, recording = searched(problem, options, ends, progress)
    made = for_all_shapes(
        problem, result, bindings, static=options.static, deadline=ends + general, plan=judging_plan(general)
    )
    if made.result.is_original and not result.is_original:
        recording = None
    result = made.result
    found = [(first, result.latency)] if others else []
    for count in others:
        with ending_at(began + limit):
            found.append((count, _with_threads(path, options, count, result, bindings, THREADS_SHARE * limit)))
    return Optimization(options, problem, result, began, tuple(found), recording, made.dynamic, keep)


def searched(
    problem: Problem, options: OptimizeOptions, ends: float, progress: Progress | None
) -> tuple[OptimizationResult, Recording | None]:
    """Confirm the remembered result where there is one, or else search, beginning with it. Return the result and its
    recording.

    Args:
        ends: the time at which the result must be found and checked, by `time.monotonic`.
    """
    recall = ResultRecall(problem, options) if options.memory and options.agent_spec == AUTO else None
    starts = [] if recall is None else recall.starts()
    if recall is not None and not options.search_again:
        for start in [start for start in starts if start.is_enough(options.seconds)]:
            if (known := recall.confirmed(start, _budget(options, ends), progress)) is not None:
                return known, recording_or_none(problem, known.actions, known.graph, options.rule_names)
    agent = make_agent(options.agent_spec)
    if starts and isinstance(agent, StartingAgent):
        agent.starts = starts
    watched = list[Search]()

    def watching(search: Search) -> None:
        watched[:] = [search]
        if progress is not None:
            progress(search)

    began = time.monotonic()
    result = agent.optimize(problem, _budget(options, ends), seed=options.seed, progress=watching)
    recording = recording_or_none(problem, result.actions, result.graph, options.rule_names)
    if recall is not None:
        ended = bool(watched) and watched[0].ended and not watched[0].cut_off
        recall.remember(result, recording, time.monotonic() - began if ended else options.seconds, starts)
    return result, recording


def _budget(options: OptimizeOptions, ends: float) -> Budget:
    conclusion = min(CONCLUSION_S, CONCLUSION_SHARE * options.seconds)
    seconds = max(1.0, ends - conclusion - time.monotonic())
    telling = min(TELLING_S, TELLING_SHARE * options.seconds)
    return Budget(10**9, seconds, conclusion_s=conclusion, deadline=ends, telling_s=telling)


def open_with_threads(path: Path, options: OptimizeOptions, threads: int, bindings: DimensionBindings) -> Problem:
    """Open a model file as the problem that the options describe, for a number of threads."""
    return open_problem(
        f"file:{path}", provider=options.provider, threads=threads, rules=options.rule_names,
        deployment_choices=not options.fixed_deployment, shapes=bindings.shapes or None, cached=False,
        limits=options.limits, clock=options.clock_of(threads), target_opset=options.target_opset,
        thread_choices=options.thread_choices, strict=options.strict, input_data=options.input_data,
    )  # fmt: skip


def _with_threads(
    path: Path,
    options: OptimizeOptions,
    threads: int,
    result: OptimizationResult,
    bindings: DimensionBindings,
    seconds: float,
) -> Latency:
    """Measure a result against the original with another number of threads, as far as the time goes."""
    try:
        problem = open_with_threads(path, options, threads, bindings)
        if result.is_original:
            ms = problem.measure(problem.model.original, "full").ms
            return Latency(ms, 1.0, (1.0, 1.0), 1, ms)
        if not bindings.inputs.is_static and not options.static:
            return measure_at(problem, result.graph, bindings, judging_plan(2 * seconds))[0]
        return problem.confirm(result.graph, judging_plan(2 * seconds))
    except OutOfTime:
        return Latency.failed("error", "no time was left")
