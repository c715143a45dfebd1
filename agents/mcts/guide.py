"""Guides of a tree search over whole graphs, before it measures: the order and prior of actions, and the value of a
state."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from agents.mcts.states import EnvState
from agents.ppo.acting import restore_policy
from agents.ppo.checkpoint import Checkpoint
from agents.ppo.description import known_rules
from envs import GraphRewriteEnv
from envs.observation import Observation
from envs.vocabulary import rule_vocabulary

_KINDS = {"deployment": 0, "class": 1, "site": 2}


class UniformGuide:
    """Knows nothing: all actions are equally likely. They are opened in greedy's order: deployment choices, classes,
    sites, most sites first, and ties by a seeded shuffle."""

    def priors(self, state: EnvState, rng: np.random.Generator) -> dict[int, float]:
        env = state.env
        legal = [int(action) for action in rng.permutation(np.flatnonzero(env.action_masks()[:-1]))]
        legal.sort(key=lambda action: (_KINDS[env.candidates[action].kind], -env.candidates[action].count))
        return dict.fromkeys(legal, 1.0 / max(1, len(legal)))

    def gain(self, state: EnvState, speedup: float) -> float:
        return 0.0


class PolicyGuide:
    """A trained policy: its probabilities are the priors, its critic tells what is still to be gained.

    The critic was trained on rewards in units of their own spread, which a checkpoint does not hold. So it is scaled:
    what it expects at the start stands for the best that training found beyond doubt (`best_speedup`).

    Raises:
        CheckpointError: the policy was trained with other rules, operators or features.
    """

    def __init__(self, checkpoint: Checkpoint, env: GraphRewriteEnv) -> None:
        self._policy = restore_policy(checkpoint, env)
        self._known = known_rules(checkpoint.description, rule_vocabulary())
        observation = env.reset()[0]
        at_start = self._critic(observation)
        saved = max(0.0, 1.0 - 1.0 / max(1.0, checkpoint.description.best_speedup))
        self._scale = saved / at_start if at_start > 0.0 else 0.0

    def priors(self, state: EnvState, rng: np.random.Generator) -> dict[int, float]:
        env, observation = state.env, state.observation
        mask = env.action_masks() & self._known[observation["candidate_rule"]]
        mask[env.no_op] = False
        if not mask.any():
            return {}
        probabilities = self._probabilities(observation, mask)
        order = sorted(np.flatnonzero(mask), key=lambda action: -probabilities[action])
        return {int(action): float(probabilities[action]) for action in order}

    def gain(self, state: EnvState, speedup: float) -> float:
        return max(0.0, self._scale * self._critic(state.observation)) if self._scale > 0.0 else 0.0

    def _probabilities(self, observation: Observation, mask: NDArray[np.bool_]) -> NDArray[np.float64]:
        probabilities: NDArray[np.float64] = (
            self._policy.action_probabilities(observation, mask).numpy().astype(np.float64)
        )
        return probabilities

    @torch.no_grad()
    def _critic(self, observation: Observation) -> float:
        tensors, _ = self._policy.obs_to_tensor(observation)
        return float(self._policy.predict_values(tensors))
