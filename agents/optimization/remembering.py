"""Results of earlier searches: confirmed anew where one was found for the same model structure, machine and settings,
and otherwise where the next search begins. Those that come with RewriteGym are such beginnings, too."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from agents.conclusion.conclude import saved_and_checked
from agents.conclusion.confirmation import MOST_LOOKS, is_doubtful, surely_faster
from agents.conclusion.recordings import actions_of
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.paths import known_results
from agents.optimization.circumstances import context_of
from agents.optimization.options import OptimizeOptions
from agents.searching.known_starts import Start
from graph_rewrite.delivery.ship import UnmadeModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memory import weight_bytes
from graph_rewrite.latency import JUDGE, Latency
from graph_rewrite.latency.estimates import pooled
from graph_rewrite.mutate.mutant_rules import MalformedMutantError, read_mutant_rules
from graph_rewrite.replay import RecordedStep, Recording, Replay, fingerprint, replay
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.replay.remembered import RememberedResult
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.limits import FREE_BYTES
from graph_rewrite.task.problem import Problem

NAME = "memory"
"""The agent that a result is said to come from that no search was needed for."""
MOST_STARTS = 3
"""Remembered results that are replayed: that of the same settings, and the latest used of others."""
MOST_SHIPPED = 2
"""Results that come with RewriteGym of which a search begins with."""
REPLAYING_SHARE = 0.1
"""Most of the time limit that replaying remembered results may take, and likewise those that come with RewriteGym."""
CONFIRMING_S = 8.0
"""Seconds for measuring a remembered result once."""
CONFIRMING_SHARE = 0.4
"""Share of the search's seconds after which it is not measured again, whatever doubt is left."""
SAME_GAIN = 0.95
"""Part of the remembered gain that must be possible by the interval measured now, or the search goes on."""


@dataclass(frozen=True, slots=True)
class KnownStart(Start):
    """A known result, replayed on this model."""

    remembered: RememberedResult
    complete: bool
    """Whether all of it was replayed."""
    doubtful: bool = False
    """Whether it did not gain when it was last tried in these circumstances."""
    lighter: bool = False
    """Whether it is the result without the rewrites that add weights."""

    def is_enough(self, seconds: float) -> bool:
        """Return whether a search of so many seconds is not expected to find more."""
        fits = self.complete and self.remembered.same_context and not self.doubtful
        return fits and self.remembered.seconds >= seconds


class ResultRecall:
    """The known results of one problem: those that are remembered, and those that come with RewriteGym.

    Args:
        problem: the problem, opened as the options say.
        options: the options of the optimisation.
        memory: where results are kept; the user's cache folder by default.
        shipped: results that come with RewriteGym; those of the installation by default.
    """

    def __init__(
        self,
        problem: Problem,
        options: OptimizeOptions,
        memory: ResultMemory | None = None,
        shipped: ResultMemory | None = None,
    ) -> None:
        self.problem, self.options = problem, options
        self.memory = ResultMemory() if memory is None else memory
        self.shipped = ResultMemory(known_results(), read_only=True) if shipped is None else shipped
        graph = problem.model.graph
        self.fingerprint, self.any_size = fingerprint(graph), fingerprint(graph, any_size=True)
        self.context = context_of(problem, options)
        self.replaying_s = 0.0
        """Seconds that replaying known results has taken."""

    def starts(self) -> list[KnownStart]:
        """Return the remembered results that can be replayed here, at least in part, the most fitting first."""
        return self._replayed(self.memory.recall(self.fingerprint, self.context, self.any_size)[:MOST_STARTS], ())

    def shipped_starts(self, known: Sequence[KnownStart]) -> list[KnownStart]:
        """Return the results that come with RewriteGym for this architecture and can be replayed here, those of this
        machine and this number of threads first; none where a search in these circumstances has gone on from them
        already.

        Args:
            known: the starts that there are.
        """
        if any(start.remembered.same_context for start in known):
            return []
        provider, threads = self.problem.deployment.provider, self.problem.deployment.threads

        def suits(result: RememberedResult) -> tuple[bool, bool, float]:
            elsewhere = result.context.get("device") != self.context["device"]
            return elsewhere, result.recording.deployment.get("threads") != threads, -result.speedup

        found = self.shipped.recall(self.fingerprint, self.context, self.any_size)
        found = [one for one in found if one.recording.deployment.get("provider") == provider]
        return self._replayed(sorted(found, key=suits)[:MOST_SHIPPED], known)

    def _replayed(self, results: Sequence[RememberedResult], known: Sequence[KnownStart]) -> list[KnownStart]:
        """Replay results, as far as a share of the time limit goes."""
        problem, found, began = self.problem, list[KnownStart](), time.monotonic()
        with suppress(OutOfTime), ending_at(began + REPLAYING_SHARE * self.options.seconds):
            for remembered in results:
                recording = suited(remembered.recording, problem)
                self._add_mutants(recording)
                replayed = self._replay(recording)
                if not replayed.applied or not self._may_run(replayed.graph):
                    self.memory.failed(remembered, self.context)
                elif all(replayed.graph.hash != start.graph.hash for start in (*known, *found)):
                    whole = replayed.complete and recording.steps == remembered.recording.steps
                    doubtful = remembered.failures_in(self.context) > 0
                    actions = actions_of(replayed.applied)
                    without = None if self._is_from_here(remembered) else partial(self._without, recording)
                    start = KnownStart(replayed.graph, actions, remembered, whole, doubtful, without=without)
                    found += [start, *self._lighter(start, recording, (*known, *found))]
        self.replaying_s += time.monotonic() - began
        return found

    def _lighter(self, start: KnownStart, recording: Recording, others: Sequence[KnownStart]) -> Iterator[KnownStart]:
        """Yield a start without its rewrites that add weights where weights have a price: here they may save too
        little for it."""
        original = self.problem.model.original
        if not self.problem.limits.price(original, start.graph):
            return
        lighter = self._replay(recording, most_bytes=weight_bytes(original) + FREE_BYTES)
        known = {self.problem.model.graph.hash, *(other.graph.hash for other in others)}
        if lighter.graph.hash not in known and self._may_run(lighter.graph):
            yield KnownStart(lighter.graph, actions_of(lighter.applied), start.remembered, False, lighter=True)

    def _add_mutants(self, recording: Recording) -> None:
        """Offer the mutants that a result uses, where mutants may be taken at all. One whose proof fails is left
        out, and with it the steps that use it."""
        if self.options.mutants != "off":
            for mutant in recording.mutants:
                with suppress(MalformedMutantError):
                    self.problem.add_rules(read_mutant_rules([mutant]))

    def _replay(self, recording: Recording, **limits: Any) -> Replay:
        graph, rewriter = self.problem.model.graph, self.problem.rewriter
        return replay(recording, graph, rewriter, partial=True, strict=self.options.strict, **limits)

    def _is_from_here(self, remembered: RememberedResult) -> bool:
        """Return whether a result was found in these circumstances, or ships for this machine and number of threads."""
        context, threads = remembered.context, self.problem.deployment.threads
        ships = "found_by" in context and context.get("device") == self.context["device"]
        return remembered.same_context or (ships and context.get("threads") == threads)

    def _without(self, recording: Recording, untouched: frozenset[int]) -> Start | None:
        """Return a start without the rewrites that remove some nodes; None where none are left."""
        replayed = self._replay(recording, untouched=untouched)
        if not replayed.applied or not self._may_run(replayed.graph):
            return None
        return Start(replayed.graph, actions_of(replayed.applied))

    def _may_run(self, graph: Graph) -> bool:
        """Return whether a graph asks for a number of threads that the user has left open."""
        here = self.problem.deployment.threads
        return dict(graph.session_settings).get("threads", here) in (here, *self.problem.thread_choices)

    def confirmed(
        self, start: KnownStart, budget: Budget, progress: Callable[[Search], None] | None
    ) -> OptimizationResult | None:
        """Measure a remembered result and compare its outputs. Return None where it is not surely faster here, gains
        clearly less than it did, or differs: then a search is needed, and the memory knows."""
        problem, before = self.problem, start.remembered
        search = Search(problem, budget, progress)
        try:
            with ending_at(budget.deadline):
                search.measure(problem.model.graph, ())
                latency = search.measure(start.graph, start.actions)
                if latency.ok:
                    latency = self._measured(search, start.graph)
                if not surely_faster(latency):
                    if not is_doubtful(latency):  # it gains nothing, cannot be run here, or breaks a limit
                        self.memory.failed(before, self.context)
                    return None
                if latency.ci95[1] < 1.0 + SAME_GAIN * (before.speedup - 1.0):
                    self.memory.corrected(before, latency.speedup)
                    return None
                checked = saved_and_checked(problem, start.graph)
        except OutOfTime:
            return None
        if not checked.outcome.ok:
            self.memory.failed(before, self.context)
            return None
        self.memory.used(before, self.context)
        message = (
            f"remembered from an earlier search of {before.seconds:.0f} s, which found x{before.speedup:.3f}; "
            "--search-again searches anew"
        )
        return OptimizationResult(
            NAME, start.graph, latency, start.actions, checked, tuple(search.improvements), search.measurements,
            search.applications, search.elapsed, message, trials=search.trials, faults=search.rule_faults,
            path=before.path if before.path and before.path[-1][0] == len(start.actions) else (),
        )  # fmt: skip

    def _measured(self, search: Search, graph: Graph) -> Latency:
        """Measure a remembered result with care; where that leaves a doubt, a few more times while little of the time
        is spent."""
        plan, last = replace(JUDGE, budget_s=CONFIRMING_S), search.after(CONFIRMING_SHARE)
        latency = self.problem.confirm(graph, plan)
        for look in range(1, MOST_LOOKS):
            if not is_doubtful(latency) or search.seconds >= last:
                break
            latency = pooled(latency, self.problem.confirm(graph, plan, look))
        return latency

    def learn(self, starts: Sequence[KnownStart], search: Search, result: OptimizationResult) -> None:
        """Note which starts gained in a search: one that was measured as no faster did not, nor did any where a search
        that came to its end kept the original."""
        for start in starts:
            visit = search.visits.get(start.graph.hash)
            if visit is None or start.lighter:
                continue
            latency = visit.latency
            if not latency.ok or latency.ci95[1] <= 1.0 or (result.is_original and not search.ended):
                self.memory.failed(start.remembered, self.context)
            elif surely_faster(latency):
                self.memory.used(start.remembered, self.context)

    def remember(
        self, result: OptimizationResult, recording: Recording | None, seconds: float, starts: Sequence[KnownStart]
    ) -> bool:
        """Keep the result of a search of so many seconds; return whether there was one to keep.

        What a search found that began with an earlier one counts as found in the longer time of the two. A result whose
        file is not made yet is kept, too: whatever is remembered is compared anew before it is handed over.
        """
        if result.is_original or recording is None or not (result.verified or isinstance(result.checked, UnmadeModel)):
            return False
        own = [start.remembered.seconds for start in starts if start.remembered.same_context]
        kept = replace(recording, model="", model_hash="")
        longest = max([seconds, *own])
        path = path_by_steps(result, recording)
        found = RememberedResult(kept, result.latency.speedup, longest, self.context, path=path)
        return self.memory.remember(found)


def suited(recording: Recording, problem: Problem) -> Recording:
    """Return a recording without numbers of threads that its deployment asks for and the user has not left open."""
    allowed = (problem.deployment.threads, *problem.thread_choices)

    def kept(step: RecordedStep) -> RecordedStep:
        if step.kind != "deployment" or step.settings.get("threads", allowed[0]) in allowed:
            return step
        settings = {name: value for name, value in step.settings.items() if name != "threads"}
        return replace(step, settings=settings, refused=step.refused or ())

    return replace(recording, steps=tuple(map(kept, recording.steps)))


def path_by_steps(result: OptimizationResult, recording: Recording) -> tuple[tuple[int, float], ...]:
    """Return the measured path of a result, counted in the steps of its recording: one step records all choices of the
    deployment that are no candidates, however many actions they were."""
    steps, actions = recording.steps, result.actions
    pairs = zip(actions, steps, strict=False)
    alike = sum(1 for _ in itertools.takewhile(lambda pair: pair[0].rule == pair[1].rule, pairs))
    found = {count: speedup for count, speedup in result.path if count <= min(alike, len(steps) - 1)}
    whole = dict(result.path).get(len(actions))
    return tuple(found.items()) if whole is None else (*found.items(), (len(steps), whole))
