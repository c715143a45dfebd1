"""The trained agent at work: rollouts of a policy from its checkpoint, the likeliest first, then sampled ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, Visit, action_of
from agents.ppo.acting import acting_env, fitting_checkpoint, restore_policy, untrained_policy
from agents.ppo.checkpoint import Checkpoint, load_checkpoint
from agents.ppo.description import known_rules
from agents.ppo.options import DEFAULTS, RolloutOptions
from agents.ppo.policy import CandidatePolicy
from agents.ppo.threads import one_thread
from envs import GraphRewriteEnv
from envs.observation import Observation
from envs.vocabulary import rule_vocabulary
from graph_rewrite.task.problem import Problem


class PPOAgent:
    """Takes one deterministic rollout (the likeliest action at every step), then sampled rollouts while the budget
    lasts, each from somewhere along the best path so far.

    Every graph on the way is measured, so a rollout that goes too far loses nothing.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one that ships for the problem's model, or an untrained
            one, and the result's message then says so.
        options: settings of the rollouts.
    """

    name = "ppo"

    def __init__(self, checkpoint: Checkpoint | Path | str | None = None, options: RolloutOptions = DEFAULTS) -> None:
        self._checkpoint, self.options = checkpoint, options

    @one_thread()
    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        options, (checkpoint, said) = self.options, self._load(problem)
        env = acting_env(problem, checkpoint.description.env)
        described = checkpoint.description
        if options.untrained:  # it has learnt nothing about any rule, so it may choose all of them
            policy, described = untrained_policy(checkpoint, env, seed), dataclasses.replace(described, offered=None)
        else:
            policy = restore_policy(checkpoint, env)
        known = known_rules(described, rule_vocabulary())
        rng = np.random.default_rng(seed)
        search = Search(problem, budget, progress)
        with search.running():
            _Actor(search, env, policy, known, options).roll_out_all(rng)
        return conclude(search, self.name).remarked(said)

    def _load(self, problem: Problem) -> tuple[Checkpoint, str]:
        """Return the policy, and a remark on it for readers of the result."""
        if self._checkpoint is None or self._checkpoint == "":
            return fitting_checkpoint(problem)
        given = self._checkpoint
        return given if isinstance(given, Checkpoint) else load_checkpoint(given), ""


class _Actor:
    """Rollouts of a policy that measure what they pass."""

    def __init__(
        self,
        search: Search,
        env: GraphRewriteEnv,
        policy: CandidatePolicy,
        known_rules: NDArray[np.bool_],
        options: RolloutOptions,
    ) -> None:
        self._search, self._env, self._policy, self._known = search, env, policy, known_rules
        self._options = options
        self._tried: dict[str, set[str]] = {}
        """Keys of the candidates that sampled rollouts began with, by the hash of the graph they were taken from."""
        start = search.problem.model.graph
        search.measure(start, ())
        self._base: Visit = search.visits[start.hash]
        self._comparing = 0.0
        """Seconds spent on timing graphs in turn."""

    def roll_out_all(self, rng: np.random.Generator) -> None:
        """The deterministic rollout, then sampled ones while the budget lasts and they find new graphs."""
        search, options = self._search, self._options
        self.rollout(None, 1.0)
        temperature, fruitless = 1.0, 0
        while options.sampled and not search.exhausted and fruitless < options.fruitless:
            before = search.measurements
            self.rollout(rng, temperature)
            fruitless = 0 if search.measurements > before else fruitless + 1
            # A policy that is sure of itself finds nothing new: let it wander further while the budget lasts.
            temperature = 1.0 if fruitless == 0 else temperature * options.warming

    def rollout(self, rng: np.random.Generator | None, temperature: float) -> None:
        """The likeliest actions from the start without `rng`; with it, sampled ones from a point on the best path, at
        least one of them."""
        env, search = self._env, self._search
        env.budget_left = self._budget_left()
        observation, _ = env.reset()
        actions: tuple[Action, ...] = ()
        done = False
        patience = self._options.trust
        if rng is not None:
            path = self._base.actions
            if rng.random() < self._options.from_best:
                actions, patience = path, 0
            else:
                actions = path[: int(rng.integers(len(path) + 1))]
            for number, action in enumerate(actions, start=1):
                if not search.can_apply:
                    return
                keys = [candidate.key for candidate in env.candidates]
                search.count_applications()
                _, _, terminated, truncated, _ = env.step(keys.index(action.key))
                observation = env.give_feedback(search.measure(env.graph, actions[:number]))
                done = terminated or truncated
        start, behind = len(actions), 0
        while not done and not search.exhausted:
            first = rng is not None and len(actions) == start
            choice = self._choose(observation, rng, temperature, first)
            if choice == env.no_op:
                break
            if first:
                self._tried.setdefault(env.graph.hash, set()).add(env.candidates[choice].key)
            actions = (*actions, action_of(env.candidates[choice]))
            search.count_applications()
            env.budget_left = self._budget_left()
            _, _, terminated, truncated, info = env.step(choice)
            if info["failure"]:
                break
            latency = search.measure(env.graph, actions)
            observation = env.give_feedback(latency)
            behind = 0 if self._gains(search.visits[env.graph.hash]) else behind + 1
            done = terminated or truncated or not latency.ok or behind > patience

    def _budget_left(self) -> float:
        allowed = self._search.allowed
        return max(0.0, 1.0 - self._search.seconds / allowed) if allowed > 0.0 else 0.0

    def _gains(self, visit: Visit) -> bool:
        """Return whether a graph is clearly faster than the base; it is then the base of the rollouts to come.

        Where their intervals overlap both are timed in turn, as the best of many quick measurements is often lucky;
        once that has taken its share of the time, their lower bounds decide.
        """
        options = self._options
        mine, base = visit.latency, self._base.latency
        if not mine.ok or mine.speedup <= base.speedup * (1.0 + options.clear):
            return False
        if mine.lower_bound <= base.ci95[1] and not self._wins(visit):
            return False
        self._base = visit
        return True

    def _wins(self, visit: Visit) -> bool:
        search, clear = self._search, self._options.clear
        if self._comparing >= self._options.doubts * search.allowed:
            return visit.latency.lower_bound > self._base.latency.lower_bound * (1.0 + clear)
        begin = search.seconds
        wins = search.beats(visit, self._base, clear)
        self._comparing += search.seconds - begin
        return wins

    def _choose(
        self, observation: Observation, rng: np.random.Generator | None, temperature: float, first: bool
    ) -> int:
        """An action; the first of a sampled rollout is one that was not tried from here before."""
        mask = self._env.action_masks() & self._known[observation["candidate_rule"]]
        if first:
            tried = self._tried.get(self._env.graph.hash, set())
            mask[[k for k in np.flatnonzero(mask[:-1]) if self._env.candidates[int(k)].key in tried]] = False
        mask[self._env.no_op] = not first or not mask[:-1].any()
        probabilities = self._policy.action_probabilities(observation, mask).numpy().astype(np.float64)
        if rng is None:
            return int(probabilities.argmax())
        flattened = np.where(mask, probabilities, 0.0) ** (1.0 / temperature)
        return int(rng.choice(len(flattened), p=flattened / flattened.sum()))
