"""One episode: the graph, its candidates, the graphs visited and measured so far. Knows nothing of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from envs.graph_rewrite.details import context_features, full_entries
from envs.graph_rewrite.meta_graph import Choices, MetaGraphObserver, ObservationLimitError
from envs.graph_rewrite.visited import VisitedGraphs
from envs.observation import Observation, log_share
from graph_rewrite.errors import InvalidRewriteError, UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.problem import Problem


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """Settings of an episode: its length, and when latency is measured."""

    horizon: int = 40
    """Steps after which an episode is truncated."""
    feedback_every: int = 5
    """N of X-RLflow: steps from one measurement to the next."""
    measure_last: bool = True
    """Measure the last state of the episode, whatever `feedback_every` says."""
    given_feedback: bool = False
    """Measure nothing: the caller hands measurements over (`EpisodeEnv.give_feedback`)."""
    step_scale: int | None = None
    """Steps at which the observed `step` is 1, which it does not exceed; by default `horizon`."""

    def __post_init__(self) -> None:
        if self.horizon < 1 or self.feedback_every < 1:
            raise UserError(
                f"horizon and feedback_every must be at least 1, got {self.horizon} and {self.feedback_every}"
            )
        if self.step_scale is not None and self.step_scale < 1:
            raise UserError(f"step_scale must be at least 1, got {self.step_scale}")


@dataclass(frozen=True, slots=True)
class EpisodeStep:
    """One action that was taken."""

    action: int
    kind: Literal["site", "class", "deployment", "no-op", "illegal"]
    key: str = ""
    """Finds the candidate again in the graph before the step; empty for the No-Op and illegal actions."""
    rule: str = ""
    match: str = ""
    """The candidate's description."""
    sites: int = 0
    failure: str = ""
    """Empty, `build` where the candidate gives no valid graph, or the status of the failed measurement."""
    latency: Latency | None = None
    """The measurement after the step; None on steps without feedback."""
    speedup: float = 1.0
    """The last measured speed-up after the step."""


@dataclass(slots=True)
class Episode:
    """The state of an episode. `fork` gives an independent copy that shares graphs, which never change."""

    problem: Problem
    settings: EpisodeSettings
    observer: MetaGraphObserver
    graph: Graph
    steps: list[EpisodeStep] = field(default_factory=list)
    since_feedback: int = 0
    measured: Latency | None = None
    """The last measurement."""
    best_graph: Graph | None = None
    """The fastest measured graph, where one is faster than the original."""
    best_speedup: float = 1.0
    budget_left: float = 1.0
    """Share of the caller's budget that is left, as observed with the feature set `full`."""
    visited: VisitedGraphs = field(default_factory=VisitedGraphs)
    choices: Choices = field(init=False)
    mask: NDArray[np.bool_] = field(init=False)
    """bool [max_candidates + 1], which actions are legal; never changed in place."""

    def __post_init__(self) -> None:
        self._arrive(self.graph)

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The candidates that can be chosen from, by action."""
        return self.choices.candidates

    @property
    def speedup(self) -> float:
        """The last measured speed-up; 1.0 before the first measurement."""
        return 1.0 if self.measured is None else self.measured.speedup

    @property
    def terminated(self) -> bool:
        """Ended by the No-Op, an illegal action or a failure, or because only the No-Op is left after a step."""
        if not self.steps:
            return False
        last = self.steps[-1]
        return last.kind in ("no-op", "illegal") or bool(last.failure) or not self.mask[:-1].any()

    @property
    def truncated(self) -> bool:
        """Ended by the horizon."""
        return len(self.steps) >= self.settings.horizon and not self.terminated

    def fork(self) -> Self:
        """An independent copy."""
        twin = copy(self)
        twin.steps, twin.visited = list(self.steps), self.visited.copy()
        return twin

    def advance(self, action: int, measure: Callable[[Graph], Latency]) -> EpisodeStep:
        """Take an action, legal or not, and measure where feedback is due."""
        step = self._act(action)
        self.steps.append(step)
        over = self.terminated or self.truncated
        due = self.feedback_due or (over and self.settings.measure_last)
        asked = due and not self.settings.given_feedback and not step.failure
        self._record(measure(self.graph) if asked else None)
        return self.steps[-1]

    @property
    def feedback_due(self) -> bool:
        """Return whether the steps between measurements are over."""
        return self.since_feedback >= self.settings.feedback_every

    def give_feedback(self, latency: Latency) -> None:
        """Take over a measurement of the current graph where feedback is due."""
        if self.steps and self.feedback_due and not self.steps[-1].failure:
            self._record(latency)

    def observe(self) -> Observation:
        """The observation of the current state, freshly allocated."""
        settings, choices = self.settings, self.choices
        features = (
            min(1.0, len(self.steps) / (settings.step_scale or settings.horizon)),
            self.since_feedback / settings.feedback_every, self.speedup, self.best_speedup, log_share(choices.cut),
            log_share(len(choices.candidates)), log_share(choices.graph.count),
            len(self.graph.disabled_optimizers) / 8,
        )  # fmt: skip
        observation = self.observer.observe(choices, self.mask, features)
        if self.observer.features == "full":
            context = context_features(self.problem.deployment, self.graph, 1.0 - features[0], self.budget_left)
            observation |= full_entries(choices, self.observer.limits, self.effects(), context)
        return observation

    def effects(self) -> dict[str, float]:
        """Return the share of the original's latency that each rule saved when it was last taken in this episode, as
        far as there are measurements right before and after it."""
        found: dict[str, float] = {}
        before: float | None = 1.0
        for step in self.steps:
            after = None if step.latency is None or not step.latency.ok else 1.0 / step.latency.speedup
            if step.rule and before is not None and after is not None:
                found[step.rule] = before - after
            before = after
        return found

    def _act(self, action: int) -> EpisodeStep:
        if not 0 <= action < len(self.mask) or not self.mask[action]:
            return EpisodeStep(action, "illegal")
        if action == len(self.mask) - 1:
            return EpisodeStep(action, "no-op")
        candidate = self.candidates[action]
        failure = ""
        try:
            self._arrive(candidate.apply())
            self.since_feedback += 1
        except (InvalidRewriteError, ObservationLimitError):
            failure = "build"
        return EpisodeStep(
            action, candidate.kind, candidate.key, candidate.rule, candidate.description, candidate.count, failure
        )

    def _record(self, latency: Latency | None) -> None:
        """Complete the last step with its measurement, if it has one."""
        step, failure = self.steps[-1], self.steps[-1].failure
        if latency is not None:
            self.measured, self.since_feedback = latency, 0
            failure = failure if latency.ok else latency.status
            if latency.ok and latency.speedup > self.best_speedup:
                self.best_graph, self.best_speedup = self.graph, latency.speedup
        self.steps[-1] = replace(step, failure=failure, latency=latency, speedup=self.speedup)

    def _arrive(self, graph: Graph) -> None:
        found = self.problem.rewriter.candidates(graph)
        choices = self.observer.choose(graph, found)
        self.visited.add(graph)
        mask = np.zeros(self.observer.limits.max_candidates + 1, dtype=np.bool_)
        mask[-1] = True
        mask[: len(choices.candidates)] = ~self.visited.lead_back(graph, choices.candidates, choices.footprints)
        self.graph, self.choices, self.mask = graph, choices, mask
