"""The policy network of `agents.ppo` over the states of a table: an observation is the number of a state."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor
from stable_baselines3.common.utils import ConstantSchedule
from torch import Tensor, nn

from agents.core.config import EncoderConfig
from agents.ppo.encoder import GraphEncoder
from agents.ppo.policy import CandidatePolicy
from agents.tabular.game import IntArray, WindowGame
from agents.tabular.states import StateObservations
from envs.vocabulary import operator_vocabulary, rule_vocabulary

MAX_GRAD_NORM = 0.5
_CHUNK = 512
"""States that are looked at together where no gradient is needed."""


class StateEncoder(BaseFeaturesExtractor):
    """`GraphEncoder` over numbers of states: float32 [B, 1] to [B, A, width]. A state that a batch has several times is
    encoded once."""

    def __init__(self, space: spaces.Box, states: StateObservations, config: EncoderConfig) -> None:
        super().__init__(space, 3 * config.hidden)
        self.states = states
        self.encoder = GraphEncoder(states.space, len(operator_vocabulary()), len(rule_vocabulary()), config)

    def forward(self, numbers: Tensor) -> Tensor:
        unique, where = torch.unique(numbers.reshape(-1).long(), return_inverse=True)
        rows: Tensor = self.encoder(self.states.batch(unique))[where]
        return rows


class StatePolicy(CandidatePolicy):
    """The actor-critic of `agents.ppo.policy`, whose observations are numbers of states. Use `new_policy`."""

    game: WindowGame

    def _build_mlp_extractor(self) -> None:
        super()._build_mlp_extractor()
        # The head of effects, which algorithms that do not ask for it leave as it is.
        self.effects = nn.Sequential(nn.Linear(self.features_dim, 64), nn.ReLU(), nn.Linear(64, 1))

    def make_features_extractor(self) -> StateEncoder:
        """Return the encoder of states."""
        assert isinstance(self.observation_space, spaces.Box)
        return StateEncoder(self.observation_space, **self.features_extractor_kwargs)

    def assess(self, states: IntArray, actions: IntArray) -> tuple[Tensor, Tensor, Tensor]:
        """Return values, logarithms of the actions' probabilities, and entropies, each float32 [B], with gradients."""
        self.set_training_mode(True)
        masks: Any = self.game.masks[states]
        values, likelihoods, entropies = self.evaluate_actions(
            _observed(states), torch.from_numpy(actions), action_masks=masks
        )
        assert entropies is not None
        return values.flatten(), likelihoods, entropies

    def savings(self, states: IntArray, actions: IntArray) -> Tensor:
        """Return the shares of the window's time that steps are predicted to save, float32 [B], with gradients."""
        self.set_training_mode(True)
        rows = self.extract_features(_observed(states))
        assert isinstance(rows, Tensor)
        predicted: Tensor = self.effects(rows[torch.arange(len(states)), torch.from_numpy(actions)])
        return predicted.squeeze(-1)

    @torch.no_grad()
    def probabilities(self, states: IntArray) -> NDArray[np.float64]:
        """Return the probabilities of the actions, [B, A]; 0 for illegal ones."""
        self.set_training_mode(False)
        found = [np.zeros((0, self.game.actions))]
        for start in range(0, len(states), _CHUNK):
            part = states[start : start + _CHUNK]
            masks = self.game.masks[part]
            distribution = self.get_distribution(_observed(part), action_masks=masks).distribution
            found.append(np.where(masks, distribution.probs.double().numpy(), 0.0))  # type: ignore[union-attr]
        return np.concatenate(found)

    def sample(self, states: IntArray, random: np.random.Generator) -> IntArray:
        """Return an action for each of some states, drawn by its probability."""
        cumulative = self.probabilities(states).cumsum(axis=1)
        drawn = random.random(len(states))[:, None] * cumulative[:, -1:]
        chosen: IntArray = (cumulative <= drawn).sum(axis=1)
        return np.minimum(chosen, self.game.stop)

    def likeliest(self, states: IntArray) -> IntArray:
        """Return the likeliest action of each of some states: the deterministic policy, which is scored."""
        chosen: IntArray = self.probabilities(states).argmax(axis=1)
        return chosen

    def descend(self, loss: Tensor) -> None:
        """Take a step of the optimiser along the gradient of a loss, clipped as in PPO."""
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.parameters(), MAX_GRAD_NORM)
        self.optimizer.step()


def policy_arguments(states: StateObservations, config: EncoderConfig) -> dict[str, Any]:
    """Return the keyword arguments of `StatePolicy` beyond spaces and learning rate."""
    return {"features_extractor_kwargs": {"states": states, "config": config}}


def state_spaces(game: WindowGame) -> tuple[spaces.Box, spaces.Discrete]:
    """Return the spaces of observations and actions."""
    return spaces.Box(0, len(game.masks), (1,), np.float32), spaces.Discrete(game.actions)


def new_policy(
    game: WindowGame, states: StateObservations, config: EncoderConfig, learning_rate: float, seed: int
) -> StatePolicy:
    """Return a policy that has learnt nothing, the same for the same seed."""
    torch.manual_seed(seed)
    shown, actions = state_spaces(game)
    arguments = policy_arguments(states, config)
    # The base class has a dictionary of arrays in mind; its encoder alone reads observations.
    policy = StatePolicy(shown, actions, ConstantSchedule(learning_rate), **arguments)  # type: ignore[arg-type]
    policy.game = game
    return policy


def _observed(states: IntArray) -> Tensor:
    """Return numbers of states as observations."""
    return torch.from_numpy(states.astype(np.float32))[:, None]
