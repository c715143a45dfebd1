"""A trained policy put to work: its environment, and its weights."""

from __future__ import annotations

from pathlib import Path

import torch
from gymnasium import spaces
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.config import Config, EnvConfig
from agents.ppo.checkpoint import Checkpoint, adapt_weights, check_episodes, load_checkpoint
from agents.ppo.description import CheckpointError, PolicyDescription, check_vocabulary, shipped_checkpoint, ships_for
from agents.ppo.policy import CandidatePolicy
from agents.ppo.trainer import policy_arguments
from envs import GraphRewriteEnv
from envs.feature_sets import feature_widths
from envs.observation import ObservationLimits
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.task.problem import Problem

LONGEST = EnvConfig().horizon
"""Actions on the longest path of an agent, however short the episodes of its training were."""


def acting_env(problem: Problem, env: EnvConfig, longest: int = LONGEST) -> GraphRewriteEnv:
    """An environment to act in. Its observations are those of training; latencies come from the agent
    (`give_feedback`), and limits are wide enough for longer paths and deeper models."""
    return GraphRewriteEnv(
        problem=problem, horizon=max(env.horizon, longest), step_scale=env.horizon, feedback_every=env.feedback_every,
        given_feedback=True, features=env.features, max_candidates=max(env.max_candidates, 1024),
        max_nodes=max(env.max_nodes, 16384), max_edges=max(env.max_edges, 32768),
    )  # fmt: skip


def restore_policy(checkpoint: Checkpoint, env: GraphRewriteEnv) -> CandidatePolicy:
    """The policy of a checkpoint, for an environment of any size.

    Raises:
        CheckpointError: it was trained on windows, or with other rules, operators or features.
    """
    described = checkpoint.description
    check_episodes(checkpoint, "models")
    check_vocabulary(described, rule_vocabulary(), operator_vocabulary())
    if dict(described.features) != feature_widths(described.env.features):
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


def fitting_checkpoint(problem: Problem) -> tuple[Checkpoint, str]:
    """Return the policy that ships for a problem's model, or else an untrained one; and a remark for the reader of the
    result, empty for the first."""
    uri = problem.model.uri
    if ships_for(uri):
        return load_checkpoint(shipped_checkpoint(uri)), ""
    advice = f"train one with train.py --model {uri.removeprefix('file:')}"
    return untrained_checkpoint(), f"an untrained policy, as none ships for this model; {advice}"


def untrained_checkpoint() -> Checkpoint:
    """Return a policy with random weights, always the same, that knows all rules: near-uniform at first."""
    config = Config()
    space = ObservationLimits(1, 1, 1).space()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        actions = spaces.Discrete(2)
        policy = CandidatePolicy(space, actions, ConstantSchedule(0.0), **policy_arguments(config))
    description = PolicyDescription(
        rule_vocabulary(), operator_vocabulary(), feature_widths(), config.encoder, config.ppo.head_layers, config.env
    )
    return Checkpoint(Path("untrained"), description, policy.weights())
