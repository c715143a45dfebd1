"""Results of earlier searches: confirmed anew where one was found for the same model structure, machine and settings,
and otherwise where the next search begins."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from agents.conclusion.conclude import saved_and_checked
from agents.conclusion.confirmation import surely_faster
from agents.conclusion.recordings import actions_of, environment
from agents.core.base import Budget, OptimizationResult, Search
from agents.optimization.options import OptimizeOptions
from agents.searching.known_starts import Start
from graph_rewrite.latency import JUDGE
from graph_rewrite.replay import Recording, fingerprint, replay
from graph_rewrite.replay.memory import RememberedResult, ResultMemory
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import Problem

NAME = "memory"
"""The agent that a result is said to come from that no search was needed for."""
MOST_STARTS = 3
"""Remembered results that are replayed: that of the same settings, and the latest used of others."""
CONFIRMING_S = 8.0
"""Seconds for measuring a remembered result."""
SAME_GAIN = 0.95
"""Part of the remembered gain that must be possible by the interval measured now, or the search goes on."""

_IRRELEVANT = frozenset(
    {
        "time_limit",
        "seed",
        "shape",
        "threads",
        "provider",
        "agent",
        "checkpoint",
        "cpu_clock",
        "memory",
        "search_again",
        "specialise",
    }
)
"""Options that change neither what may be found nor what it gains, or are in the context by themselves."""


@dataclass(frozen=True, slots=True)
class KnownStart(Start):
    """A remembered result, replayed on this model."""

    remembered: RememberedResult
    complete: bool
    """Whether all of it was replayed."""

    def is_enough(self, seconds: float) -> bool:
        """Return whether a search of so many seconds is not expected to find more."""
        return self.complete and self.remembered.same_context and self.remembered.seconds >= seconds


class ResultRecall:
    """The remembered results of one problem.

    Args:
        problem: the problem, opened as the options say.
        options: the options of the optimisation.
        memory: where results are kept; the user's cache folder by default.
    """

    def __init__(self, problem: Problem, options: OptimizeOptions, memory: ResultMemory | None = None) -> None:
        self.problem, self.options = problem, options
        self.memory = ResultMemory() if memory is None else memory
        self.fingerprint = fingerprint(problem.model.graph)
        self.context = context_of(problem, options)

    def starts(self) -> list[KnownStart]:
        """Return the remembered results that can be replayed here, at least in part, the most fitting first."""
        problem, found = self.problem, list[KnownStart]()
        for remembered in self.memory.recall(self.fingerprint, self.context)[:MOST_STARTS]:
            replayed = replay(
                remembered.recording, problem.model.graph, problem.rewriter, partial=True, strict=self.options.strict
            )
            if replayed.applied and all(replayed.graph.hash != start.graph.hash for start in found):
                actions = actions_of(replayed.applied)
                found.append(KnownStart(replayed.graph, actions, remembered, replayed.complete))
        return found

    def confirmed(
        self, start: KnownStart, budget: Budget, progress: Callable[[Search], None] | None
    ) -> OptimizationResult | None:
        """Measure a remembered result and compare its outputs. Return None where it is not surely faster here, gains
        clearly less than it did, or differs: then a search is needed."""
        problem, before = self.problem, start.remembered
        search = Search(problem, budget, progress)
        try:
            with ending_at(budget.deadline):
                search.measure(problem.model.graph, ())
                if not search.measure(start.graph, start.actions).ok:
                    return None  # it cannot be run here, or breaks a limit
                latency = problem.confirm(start.graph, replace(JUDGE, budget_s=CONFIRMING_S))
                if not surely_faster(latency) or latency.ci95[1] < 1.0 + SAME_GAIN * (before.speedup - 1.0):
                    return None
                checked = saved_and_checked(problem, start.graph)
        except OutOfTime:
            return None
        if not checked.outcome.ok:
            return None
        self.memory.used(before)
        message = (
            f"remembered from an earlier search of {before.seconds:.0f} s, which found x{before.speedup:.3f}; "
            "--search-again searches anew"
        )
        return OptimizationResult(
            NAME, start.graph, latency, start.actions, checked, tuple(search.improvements), search.measurements,
            search.applications, search.elapsed, message, trials=search.trials, faults=search.rule_faults,
            path=before.path if before.path and before.path[-1][0] == len(start.actions) else (),
        )  # fmt: skip

    def remember(
        self, result: OptimizationResult, recording: Recording | None, seconds: float, starts: Sequence[KnownStart]
    ) -> bool:
        """Keep the result of a search of so many seconds; return whether there was one to keep.

        What a search found that began with an earlier one counts as found in the longer time of the two.
        """
        if result.is_original or recording is None or not result.verified:
            return False
        own = [start.remembered.seconds for start in starts if start.remembered.same_context]
        kept = replace(recording, model="", model_hash="")
        longest = max([seconds, *own])
        path = path_by_steps(result, recording)
        found = RememberedResult(kept, result.latency.speedup, longest, self.context, path=path)
        return self.memory.remember(found)


def path_by_steps(result: OptimizationResult, recording: Recording) -> tuple[tuple[int, float], ...]:
    """Return the measured path of a result, counted in the steps of its recording: one step records all choices of the
    deployment that are no candidates, however many actions they were."""
    steps, actions = recording.steps, result.actions
    pairs = zip(actions, steps, strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0].rule == pair[1].rule, pairs))
    found = {count: speedup for count, speedup in result.path if count <= min(alike, len(steps) - 1)}
    whole = dict(result.path).get(len(actions))
    return tuple(found.items()) if whole is None else (*found.items(), (len(steps), whole))


def context_of(problem: Problem, options: OptimizeOptions) -> dict[str, Any]:
    """Return all that the choice of a result and its gain depend on, beside the structure of the model: the machine,
    the runtime, the deployment, and every option that limits what a search may do."""
    given = {name: value for name, value in asdict(options).items() if name not in _IRRELEVANT}
    deployment = {"provider": problem.deployment.provider, "threads": problem.deployment.threads}
    context = {
        **environment(problem.deployment.provider), **deployment, "thread_choices": problem.thread_choices,
        "options": given,
    }  # fmt: skip
    # As it comes back out of a file: tuples are lists there.
    read: dict[str, Any] = json.loads(json.dumps(context, default=str))
    return read
