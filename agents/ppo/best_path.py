"""Learning from the best path found so far: some episodes begin on it, and the policy imitates it.

Good sequences are rare among many measured steps, and a gain of 4% after one of 40% hardly moves a policy gradient.
Returning to what was reached and exploring from there is the idea of Go-Explore (Ecoffet et al., Nature 2021).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from agents.ppo.options import CLEAR
from agents.ppo.training_state import measured_on
from envs import GraphRewriteEnv
from envs.observation import Observation
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency

FRONTIER = 0.75
"""Share of the restarts that go on from the end of the best path; the others begin somewhere on the way."""
STOPS = 0.25
"""Share of the episodes from the end of the best path that may stop there at once, so that stopping is learnt; the
others have to try something new first."""
EXPLORED = 16
"""Fruitless tries at the end of the best path after which stopping there is a part of it, to be imitated."""


@dataclass(frozen=True, slots=True)
class PathStep:
    """A decision on the best path."""

    observation: Observation
    mask: NDArray[np.bool_]
    """bool [A + 1], the legal actions."""
    action: int
    key: str
    """Finds the candidate again; empty for the No-Op."""


class BestPath(gymnasium.Wrapper[Observation, int, Observation, int]):
    """Keeps the actions that led to the fastest graph so far, and begins a share of the episodes on that path.

    A new best is measured again before it counts, as the fastest of many quick measurements is partly luck. The first
    must beat the original twice with its whole 95% interval; a later one must do so once with the best before it, in
    turn where their own intervals overlap. What is found so stands from then on. An episode that goes on from the
    path's end takes an action that was not tried there, and ends with the first that gains nothing: a look at the
    neighbours of the best graph, one by one. The others go on as ever.

    `info["confirmed_speedup"]` is `speedup`; `info["restarted"]` is true in episodes that began on the best path.

    Args:
        env: a GraphRewriteEnv.
        restarts: probability that an episode begins on the best path, 0 to 1.
        episode_steps: steps from where an episode begins after which it is truncated, at the next measured one; 0 for
            the environment's horizon alone.
    """

    def __init__(self, env: GraphRewriteEnv, restarts: float, episode_steps: int = 0) -> None:
        super().__init__(env)
        if not 0.0 <= restarts <= 1.0:
            raise UserError(f"restarts must be a probability, 0 to 1, got {restarts}")
        self._rewriting, self.restarts, self.episode_steps = env, restarts, episode_steps
        self.path: tuple[PathStep, ...] = ()
        self.latency: Latency | None = None
        """A careful measurement of the best path's end."""
        self._end: tuple[Graph, PathStep] | None = None
        self._steps: list[PathStep] = []
        self._taken = 0
        self._tried: dict[str, set[str]] = {}
        self._restarted = self._frontier = self._looking = False
        self._observation: Observation | None = None

    @property
    def speedup(self) -> float:
        """Lower bound of the speed-up at the best path's end; 1.0 for an empty path."""
        return 1.0 if self.latency is None else self.latency.lower_bound

    @property
    def lesson(self) -> tuple[PathStep, ...]:
        """The decisions to imitate: the best path, and to stop at its end once enough was tried there in vain."""
        if self._end is None:
            return ()
        graph, stop = self._end
        tried, legal = len(self._tried.get(graph.hash, ())), int(stop.mask[:-1].sum())
        return (*self.path, stop) if tried >= min(EXPLORED, legal) else self.path

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [A + 1]: what is legal, and at the end of the best path what was not tried there before."""
        mask = self._rewriting.action_masks()
        if self._frontier and len(self._steps) == len(self.path):
            tried = self._tried.get(self._rewriting.graph.hash, set())
            fresh = mask.copy()
            for k in np.flatnonzero(mask[:-1]):
                fresh[k] = self._rewriting.candidates[int(k)].key not in tried
            fresh[-1] = not self._looking
            if fresh[:-1].any():
                return fresh
        return mask

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode, perhaps on the best path."""
        self._rewriting.budget_left = 1.0
        observation, info = self.env.reset(seed=seed, options=options)
        self._steps, self._taken, self._observation = [], 0, observation
        self._restarted = self._frontier = self._looking = False
        random = self._rewriting.np_random
        if self.path and random.random() < self.restarts:
            frontier = bool(random.random() < FRONTIER)
            length = len(self.path) if frontier else int(random.integers(1, len(self.path) + 1))
            if length < self._rewriting.settings.horizon:
                self._restarted, self._frontier = True, frontier
                self._looking = frontier and bool(random.random() >= STOPS)
                for step in self.path[:length]:
                    keys = [candidate.key for candidate in self._rewriting.candidates]
                    observation, _, terminated, truncated, info = self.env.step(keys.index(step.key))
                if terminated or truncated:  # nothing is left to be done at the end of the path
                    observation, info = self.env.reset(options=options)
                    self._restarted = self._frontier = self._looking = False
                    length = 0
                self._steps, self._observation = list(self.path[:length]), observation
        return observation, info

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take an action; a fruitless one beyond the best path's end truncates the episode."""
        rewriting = self._rewriting
        assert self._observation is not None
        if action != rewriting.no_op and rewriting.action_masks()[action]:
            key = rewriting.candidates[int(action)].key
            if self._frontier and len(self._steps) == len(self.path):
                self._tried.setdefault(rewriting.graph.hash, set()).add(key)
            self._steps.append(PathStep(self._observation, rewriting.action_masks(), int(action), key))
        self._taken += 1
        if self.episode_steps:
            rewriting.budget_left = max(0.0, 1.0 - self._taken / self.episode_steps)
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._observation = observation
        measured = bool(info["measured"])
        gained = measured and not info["failure"] and self._keep(float(info["speedup"]))
        info["confirmed_speedup"], info["restarted"] = self.speedup, self._restarted
        fruitless = self._frontier and measured and not gained
        long = 0 < self.episode_steps <= self._taken and measured
        return observation, reward, terminated, truncated or ((fruitless or long) and not terminated), info

    def record(self) -> dict[str, Any] | None:
        """Return the best path as JSON-serialisable values, from which `go_on` makes it again; None without one."""
        if self._end is None or self.latency is None:
            return None
        tried = sorted(self._tried.get(self._end[0].hash, ()))
        keys = [step.key for step in self.path]
        return {
            "keys": keys, "latency": self.latency.to_json(), "graph_hash": self._end[0].hash, "tried": tried,
            "measured_on": measured_on(self._rewriting.problem.deployment),
        }  # fmt: skip

    def go_on(self, record: Mapping[str, Any]) -> bool:
        """Take over the best path of an earlier training; false where its actions do not lead to its graph any more.

        Its graphs are measured again, for the observations; its speed-up stands. One that was measured with another
        deployment or on another machine is measured anew, and false where the graph is not surely faster here. Call
        `reset` afterwards.

        Raises:
            KeyError, TypeError, ValueError: the record is none.
        """
        rewriting, steps = self._rewriting, list[PathStep]()
        latency, end = Latency.from_json(record["latency"]), str(record["graph_hash"])
        tried = {str(key) for key in record["tried"]}
        observation, _ = self.env.reset()
        for key in record["keys"]:
            mask = rewriting.action_masks()
            found = [k for k in np.flatnonzero(mask[:-1]) if rewriting.candidates[int(k)].key == key]
            if not found:
                return False
            steps.append(PathStep(observation, mask, int(found[0]), key))
            observation, _, terminated, truncated, _ = self.env.step(int(found[0]))
            if (terminated or truncated) and len(steps) < len(record["keys"]):
                return False
        if rewriting.graph.hash != end:
            return False
        here = measured_on(rewriting.problem.deployment)
        if record.get("measured_on", here) != here:
            latency, tried = rewriting.problem.settle(rewriting.graph), set()
            if not latency.ok or latency.lower_bound <= 1.0:
                return False
        self._arrive(steps, observation, latency)
        self._tried[end] = tried
        return True

    def _keep(self, speedup: float) -> bool:
        """Return whether the episode stands at a new best; its path is then the one to follow."""
        best = 1.0 if self.latency is None else self.latency.speedup
        if speedup <= best * (1.0 + CLEAR):
            return False
        confirmed = self._rewriting.problem.settle(self._rewriting.graph)
        if not confirmed.ok or confirmed.speedup <= best * (1.0 + CLEAR / 2):
            return False
        proved = self._proved(self._rewriting.graph, confirmed)
        if proved is None:
            return False
        assert self._observation is not None
        self._arrive(self._steps, self._observation, proved)
        return True

    def _proved(self, graph: Graph, confirmed: Latency) -> Latency | None:
        """Return what is known of a graph's latency if it is surely faster than the best so far, else None."""
        problem = self._rewriting.problem
        if self._end is None or self.latency is None:
            if confirmed.lower_bound <= 1.0:
                return None
            again = problem.confirm(graph, None, 1)
            lower = min(confirmed, again, key=lambda latency: latency.lower_bound)
            return lower if lower.lower_bound > 1.0 else None
        if confirmed.lower_bound > self.latency.ci95[1]:
            return confirmed
        compared = problem.compare(self._end[0], graph)
        return confirmed if compared is not None and compared[0].lower_bound > 1.0 else None

    def _arrive(self, steps: list[PathStep], observation: Observation, latency: Latency) -> None:
        mask = self._rewriting.action_masks()
        self.path, self.latency = tuple(steps), latency
        self._end = self._rewriting.graph, PathStep(observation, mask, self._rewriting.no_op, "")
