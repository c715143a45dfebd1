"""Gymnasium's interface to an episode, put together from its parts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from typing import Any, Self, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.checks import check_state, checked_action, restore_random
from envs.graph_rewrite.episode import Episode, EpisodeSettings
from envs.graph_rewrite.meta_graph import MetaGraphObserver
from envs.graph_rewrite.records import episode_state, replay_episode
from envs.graph_rewrite.viewer import RENDER_MODES, EpisodeViewer
from envs.observation import Observation
from envs.problems import ProblemSource
from envs.reward import ILLEGAL_ACTION_REWARD, RewardContext, RewardFunction
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.candidates import Candidate

Info = dict[str, Any]


class EpisodeEnv(gymnasium.Env[Observation, int]):
    """An environment of rewriting episodes. `GraphRewriteEnv` explains observation, action, reward and end.

    Args:
        problems: the models that episodes start from.
        settings: length of an episode, and when latency is measured.
        observer: how the state is observed.
        reward_fn: computes the reward of a step.
        viewer: what `render` shows; nothing by default.
    """

    metadata: dict[str, Any] = {"render_modes": RENDER_MODES, "render_fps": 1}  # noqa: RUF012
    observation_space: spaces.Dict  # type: ignore[assignment]
    action_space: spaces.Discrete  # type: ignore[assignment]

    def __init__(
        self,
        problems: ProblemSource,
        settings: EpisodeSettings,
        observer: MetaGraphObserver,
        reward_fn: RewardFunction,
        viewer: EpisodeViewer | None = None,
    ) -> None:
        self.problems, self.settings, self.observer = problems, settings, observer
        self.reward_fn, self.viewer = reward_fn, viewer
        self.render_mode = None if viewer is None else viewer.mode
        self.problem = problems.first
        """The model being optimised, with its rewriter and meter."""
        self._episode: Episode | None = None
        self._budget_left = 1.0
        self.observation_space = observer.space()
        self.action_space = spaces.Discrete(observer.limits.max_candidates + 1)

    @property
    def models(self) -> tuple[str, ...]:
        """URIs of the models that `reset` draws from."""
        return self.problems.uris

    @property
    def no_op(self) -> int:
        """The action that ends the episode: the last one."""
        return self.observer.limits.max_candidates

    @property
    def graph(self) -> Graph:
        """The current graph."""
        return self._running.graph

    @property
    def candidates(self) -> Sequence[Candidate]:
        """The candidates of the current graph: action k takes candidate k."""
        return self._running.candidates

    @property
    def budget_left(self) -> float:
        """Share of the caller's budget that is left, 0 to 1: what the next observations with the feature set `full`
        show. It is 1 until the caller sets it."""
        return self._budget_left

    @budget_left.setter
    def budget_left(self, share: float) -> None:
        self._budget_left = share
        if self._episode is not None:
            self._episode.budget_left = share

    @property
    def best_graph(self) -> Graph:
        """The fastest graph measured in this episode; the original model where none was faster."""
        return self._running.best_graph or self.problem.model.original

    @property
    def best_speedup(self) -> float:
        """Speed-up of `best_graph` over the original model; at least 1."""
        return self._running.best_speedup

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [C + 1]: which actions are legal. The name is the one that sb3-contrib's MaskablePPO looks for."""
        return self._running.mask.copy()

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start an episode. `options={"model": uri}` chooses one of several models instead of drawing it.

        Raises:
            UserError: unknown options, a model this environment was not made with, or one that exceeds the limits.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        uri = chosen.pop("model", None)
        if chosen:
            raise UserError(f"unknown reset options {sorted(chosen)}; there is 'model'")
        problem = self.problems.draw(self.np_random) if uri is None else self.problems[uri]
        return self._begin(Episode(problem, self.settings, self.observer, problem.model.graph))

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Take an action.

        Raises:
            gymnasium.error.ResetNeeded: the episode is over.
            UserError: the action is no whole number.
        """
        episode, number = self._running, checked_action(action, self.no_op)
        if episode.terminated or episode.truncated:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        before = episode.speedup
        step = episode.advance(number, self.problem.measure)
        reward = ILLEGAL_ACTION_REWARD if step.kind == "illegal" else float(self.reward_fn(_context(episode, before)))
        return episode.observe(), reward, episode.terminated, episode.truncated, _info(episode)

    def give_feedback(self, latency: Latency) -> Observation:
        """Take over a measurement of the current graph, made by the caller, if `feedback_every` says that it is due;
        return the state's observation.

        Raises:
            UserError: the environment measures by itself; `given_feedback=True` makes one that does not.
        """
        if not self.settings.given_feedback:
            raise UserError("this environment measures by itself: make it with given_feedback=True to give latencies")
        self._running.give_feedback(latency)
        return self._running.observe()

    def fork(self) -> Self:
        """An independent environment in the same state, random generator included; shares model, meter and graphs."""
        twin = copy(self)
        twin._episode = None if self._episode is None else self._episode.fork()
        twin._np_random = deepcopy(self._np_random)
        return twin

    def state(self) -> dict[str, Any]:
        """The episode as JSON-serialisable values: model URI, settings, actions and random generator, no graphs."""
        return {**episode_state(self._running), "random": self.np_random.bit_generator.state}

    def restore(self, state: Mapping[str, Any]) -> tuple[Observation, Info]:
        """Go to a recorded state by taking its actions again; nothing is measured. Returns what `reset` returns.

        Raises:
            ReplayError: recorded with another model, other settings or other rules, or no recorded state.
            UserError: this environment was not made with the recorded model.
        """
        check_state(state, ("format", "model", "settings", "steps", "graph_hash", "random"))
        episode = replay_episode(state, self.problems[state["model"]], self.settings, self.observer)
        restore_random(self.np_random, state["random"])
        return self._begin(episode)

    def render(self) -> str | NDArray[np.uint8] | None:
        """The episode so far: a table as text (`ansi`), or a drawing as uint8 [360, 640, 3] (`rgb_array`)."""
        if self.viewer is None:
            gymnasium.logger.warn("render() does nothing: make the environment with render_mode='ansi' or 'rgb_array'")
            return None
        return self.viewer.draw(self._running)

    def close(self) -> None:
        """Forget the episode. Model and meter are shared within the process; the meter's worker ends with it."""
        self._episode = None

    @property
    def _running(self) -> Episode:
        if self._episode is None:
            raise gymnasium.error.ResetNeeded("the environment has no state yet: call reset() first")
        return self._episode

    def _begin(self, episode: Episode) -> tuple[Observation, Info]:
        self._episode, self.problem, episode.budget_left = episode, episode.problem, self._budget_left
        return episode.observe(), _info(episode)


def _context(episode: Episode, before: float) -> RewardContext:
    step = episode.steps[-1]
    failed = bool(step.failure)
    return RewardContext(
        previous=1.0 / before,
        current=math.inf if failed else 1.0 / episode.speedup,
        initial=1.0,
        measured=step.latency is not None,
        failed=failed,
        terminal=episode.terminated or episode.truncated,
        step=len(episode.steps),
        rule=step.rule,
        kind=step.kind,
        sites=step.sites,
        latency=step.latency,
        graph=episode.graph,
    )


def _info(episode: Episode) -> Info:
    step = episode.steps[-1] if episode.steps else None
    return {
        "model": episode.problem.model.uri,
        "step": len(episode.steps),
        "rule": step.rule if step else "",
        "match": step.match if step else "",
        "kind": step.kind if step else "",
        "measured": step is not None and step.latency is not None,
        "latency_ms": episode.measured.ms if episode.measured else 0.0,
        "speedup": episode.speedup,
        "best_speedup": episode.best_speedup,
        "graph_hash": episode.graph.hash,
        "candidates": len(episode.candidates),
        "candidates_cut": episode.choices.cut,
        "illegal_action": step is not None and step.kind == "illegal",
        "failure": step.failure if step else "",
    }
