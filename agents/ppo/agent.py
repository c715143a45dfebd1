"""The trained agent at work: rollouts of a policy from its checkpoint, the likeliest first, then sampled ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from stable_baselines3.common.utils import ConstantSchedule

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, Visit, action_of
from agents.core.config import Config, EnvConfig
from agents.core.paths import checkpoints
from agents.ppo.best_path import CLEAR
from agents.ppo.checkpoint import (
    Checkpoint,
    CheckpointError,
    PolicyDescription,
    adapt_weights,
    check_vocabulary,
    load_checkpoint,
)
from agents.ppo.policy import CandidatePolicy
from agents.ppo.trainer import policy_arguments
from envs import GraphRewriteEnv
from envs.observation import Observation, feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.task.problem import Problem


@dataclass(frozen=True, slots=True)
class RolloutOptions:
    """Settings of the rollouts with a trained policy."""

    sampled: bool = True
    """Also draw rollouts from the policy after the deterministic one."""
    clear: float = CLEAR
    """A difference in speed-up that is more than noise. Following smaller ones would be climbing on luck."""
    trust: int = 4
    """Graphs in a row without a clear gain that a rollout may pass: enough to cross the valley of a layout change."""
    from_best: float = 0.75
    """Share of the sampled rollouts that go on from the best graph and end with the first action that gains nothing;
    the others begin somewhere on the way to it, and are trusted like the deterministic one."""
    warming: float = 1.5
    """Factor on the temperature of sampling after a rollout without a new graph."""
    fruitless: int = 20
    """Sampled rollouts in a row without a new graph after which the policy has nothing more to say."""
    untrained: bool = False
    """Act with the checkpoint's network at random weights, drawn by the seed: a control for what training brings."""


DEFAULTS = RolloutOptions()


class PPOAgent:
    """Takes one deterministic rollout (the likeliest action at every step), then sampled rollouts while the budget
    lasts, each from somewhere along the best path so far.

    Every graph on the way is measured, so a rollout that goes too far loses nothing.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one shipped for the problem's model.
        options: settings of the rollouts.
    """

    name = "ppo"

    def __init__(self, checkpoint: Checkpoint | Path | str | None = None, options: RolloutOptions = DEFAULTS) -> None:
        self._checkpoint, self.options = checkpoint, options

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        options, checkpoint = self.options, self._load(problem)
        env = acting_env(problem, checkpoint.description.env)
        policy = untrained_policy(checkpoint, env, seed) if options.untrained else restore_policy(checkpoint, env)
        known = np.isin(rule_vocabulary(), checkpoint.description.rules)
        rng = np.random.default_rng(seed)
        search = Search(problem, budget, progress)
        actor = _Actor(search, env, policy, known, options)
        with search.running():
            actor.roll_out_all(rng)
        return conclude(search, self.name)

    def _load(self, problem: Problem) -> Checkpoint:
        if isinstance(self._checkpoint, Checkpoint):
            return self._checkpoint
        return load_checkpoint(self._checkpoint or shipped_checkpoint(problem.model.uri))


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
        self._base: Visit | None = None

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
        observation, _ = env.reset()
        actions: tuple[Action, ...] = ()
        done = False
        patience = self._options.trust
        if rng is not None and self._base is not None:
            path = self._base.actions
            if rng.random() < self._options.from_best:
                actions, patience = path, 0
            else:
                actions = path[: int(rng.integers(len(path) + 1))]
            for action in actions:
                if not search.can_apply:
                    return
                keys = [candidate.key for candidate in env.candidates]
                search.count_applications()
                observation, _, terminated, truncated, _ = env.step(keys.index(action.key))
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
            observation, _, terminated, truncated, _ = env.step(choice)
            done = terminated or truncated
            behind = 0 if self._gains(actions) else behind + 1
            done = done or behind > patience

    def _gains(self, actions: tuple[Action, ...]) -> bool:
        """Measure where the rollout stands; a graph that is clearly faster becomes the base of those to come."""
        search, graph = self._search, self._env.graph
        speedup = search.measure(graph, actions).speedup
        if self._base is not None and speedup <= self._base.latency.speedup * (1.0 + self._options.clear):
            return False
        self._base = search.visits[graph.hash]
        return True

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


def acting_env(problem: Problem, env: EnvConfig) -> GraphRewriteEnv:
    """An environment to act in: as in training, but nothing is measured by the environment itself, and limits are
    wide enough for deeper models."""
    return GraphRewriteEnv(
        problem=problem, horizon=env.horizon, feedback_every=env.horizon + 1, measure_last=False,
        max_candidates=max(env.max_candidates, 768), max_nodes=max(env.max_nodes, 6144),
        max_edges=max(env.max_edges, 12288),
    )  # fmt: skip


def restore_policy(checkpoint: Checkpoint, env: GraphRewriteEnv) -> CandidatePolicy:
    """The policy of a checkpoint, for an environment of any size.

    Raises:
        CheckpointError: it was trained with other rules, operators or features.
    """
    described = checkpoint.description
    check_vocabulary(described, rule_vocabulary(), operator_vocabulary())
    if dict(described.features) != dict(feature_sizes()):
        raise CheckpointError(f"{checkpoint.path}: trained with other observation features; train again")
    policy = _network(described, env)
    policy.load_weights(adapt_weights(checkpoint, rule_vocabulary(), operator_vocabulary()))
    return policy


def untrained_policy(checkpoint: Checkpoint, env: GraphRewriteEnv, seed: int) -> CandidatePolicy:
    """The network of a checkpoint with the weights that training would begin with, drawn by `seed`."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return _network(checkpoint.description, env)


def _network(described: PolicyDescription, env: GraphRewriteEnv) -> CandidatePolicy:
    arguments = policy_arguments(Config(encoder=described.encoder))
    arguments["head_layers"] = described.head_layers
    policy = CandidatePolicy(env.observation_space, env.action_space, ConstantSchedule(0.0), **arguments)
    policy.set_training_mode(False)
    return policy


def shipped_checkpoint(uri: str) -> Path:
    """Folder of the checkpoint that comes with the project for a zoo model.

    Raises:
        CheckpointError: there is none for this model.
    """
    name = uri.removeprefix("zoo://").split("?")[0]
    folder = checkpoints() / name
    if not folder.is_dir():
        shipped = sorted(path.name for path in checkpoints().iterdir() if path.is_dir())
        raise CheckpointError(
            f"no checkpoint comes with the project for {uri} (there are: {', '.join(shipped) or 'none'}); "
            f"train one with train.py --model {uri}, or name one with --checkpoint"
        )
    return folder
