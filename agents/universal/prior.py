"""The universal policy at work: its opinion of the steps of any model's windows, before anything is measured."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from stable_baselines3.common.utils import ConstantSchedule

from agents.core.config import Config
from agents.core.paths import checkpoints
from agents.effects.prior import StepObserver
from agents.ppo.batches import batch_of
from agents.ppo.checkpoint import Checkpoint, adapt_weights, check_episodes, load_checkpoint
from agents.ppo.description import UNIVERSAL, CheckpointError, check_vocabulary, known_rules
from agents.ppo.threads import one_thread
from agents.ppo.trainer import policy_arguments
from agents.universal.observations import unmeasured
from agents.universal.opinion import Opinion
from agents.universal.policy import WindowPolicy
from envs.feature_sets import feature_widths, observation_space
from envs.observation import Observation, ObservationLimits
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.runtime import Deployment

OPTIMISM = 0.3
"""Standard deviations above the mean that a step is hoped to reach: what is little known is tried."""


def shipped_policy() -> Checkpoint:
    """Return the checkpoint of the universal policy that ships.

    Raises:
        CheckpointError: there is none.
    """
    return load_checkpoint(checkpoints() / UNIVERSAL)


def restore_window_policy(checkpoint: Checkpoint) -> WindowPolicy:
    """Return the policy of a checkpoint, for windows of any size.

    Raises:
        CheckpointError: it was not trained on windows, or with other rules, operators or features.
    """
    described = checkpoint.description
    check_episodes(checkpoint, "windows")
    check_vocabulary(described, rule_vocabulary(), operator_vocabulary())
    if dict(described.features) != feature_widths("full"):
        raise CheckpointError(f"{checkpoint.path}: trained with other observation features; train again")
    arguments = policy_arguments(Config(encoder=described.encoder))
    arguments["head_layers"] = described.head_layers
    space = observation_space(ObservationLimits(1, 1, 1), "full")
    with torch.random.fork_rng(devices=[]):
        policy = WindowPolicy(space, spaces.Discrete(2), ConstantSchedule(0.0), **arguments)
    try:
        policy.load_weights(adapt_weights(checkpoint, rule_vocabulary(), operator_vocabulary()))
    except RuntimeError as error:
        raise CheckpointError(f"{checkpoint.path}: its weights do not fit its description; train again") from error
    policy.set_training_mode(False)
    return policy


@one_thread()
@torch.no_grad()
def opinions(
    policy: WindowPolicy, observations: Sequence[Observation], known: NDArray[np.bool_] | None = None
) -> list[Opinion]:
    """Return the policy's opinion of states.

    Args:
        policy: the policy.
        observations: without measurements.
        known: bool [rules], those that the policy may choose; by default all.
    """
    policy.set_training_mode(False)
    outputs = policy.outputs({name: tensor.to(policy.device) for name, tensor in batch_of(observations).items()})
    probabilities = outputs.log_probabilities.exp().double().cpu().numpy()
    effects = outputs.effects.double().cpu().numpy()
    found = []
    for row, observation in enumerate(observations):
        steps = int(observation["sizes"][2])
        chosen = np.append(probabilities[row, :steps], probabilities[row, -1])
        if known is not None:
            chosen[:-1] *= known[observation["candidate_rule"][:steps]]
        # Where nothing is known of any step, to stop is all that is left.
        total = chosen.sum()
        chosen = chosen / total if total > 0.0 else np.append(np.zeros(steps), 1.0)
        found.append(Opinion(chosen, effects[row, :steps, 0], np.exp(effects[row, :steps, 1])))
    return found


class UniversalPrior:
    """Proposes and predicts steps in windows by the universal policy.

    Args:
        checkpoint: of a training on windows.
        deployment: machine and settings that the windows are timed with.
        optimism: standard deviations above the mean that a step is hoped to reach.

    Raises:
        CheckpointError: it was not trained on windows, or with other rules, operators or features.
    """

    def __init__(self, checkpoint: Checkpoint, deployment: Deployment, optimism: float = OPTIMISM) -> None:
        self.checkpoint, self._optimism = checkpoint, optimism
        self._policy, self._observer = restore_window_policy(checkpoint), StepObserver(deployment)
        self._known = known_rules(checkpoint.description, rule_vocabulary())
        self._horizon = checkpoint.description.env.horizon

    @classmethod
    def shipped(cls, deployment: Deployment) -> UniversalPrior:
        """Return the policy that ships.

        Raises:
            CheckpointError: there is none, or it does not fit this version.
        """
        return cls(shipped_policy(), deployment)

    def opinion(self, steps: Sequence[Candidate], depth: int) -> Opinion | None:
        """Return what the policy thinks of the steps of one state; None where the state is too large to be looked at.

        Args:
            steps: steps of one state of a window.
            depth: rewrites that led to it.
        """
        kept, sample = self._observer.observed(steps, 0.0, depth)
        if sample is None:
            return None
        (seen,) = opinions(self._policy, [unmeasured(sample.observation, depth, self._horizon)], self._known)
        if len(kept) == len(steps):
            return seen
        probabilities = np.zeros(len(steps) + 1)
        effects, deviations = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
        probabilities[[*kept, -1]] = seen.probabilities
        effects[kept], deviations[kept] = seen.effects, seen.deviations
        return Opinion(probabilities, effects, deviations)

    def hopes(self, steps: Sequence[Candidate], share: float, depth: int) -> list[float | None]:
        """Return the share of the window's time that each step is hoped to save beyond `share`, which the `depth`
        rewrites before it save; None for steps too large to be looked at."""
        opinion = self.opinion(steps, depth)
        if opinion is None:
            return [None] * len(steps)
        return [opinion.saving(number, share, self._optimism) for number in range(len(steps))]
