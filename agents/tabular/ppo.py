"""MaskablePPO of sb3-contrib with self-imitation, as `agents.ppo` trains, in the windows of a table."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.logger import configure
from torch import nn

from agents.tabular.cloning import BATCH, Decisions, drawn, imitate
from agents.tabular.policy import MAX_GRAD_NORM, StateEncoder, StatePolicy, policy_arguments
from agents.tabular.run import LearningRun
from agents.tabular.vec_env import Reward, WindowVecEnv

ENVIRONMENTS, ROLLOUT = 64, 8
"""Environments side by side, and steps of each between two updates."""
EPOCHS = 4
"""Passes over the steps of an update."""
LARGE_ERROR = 0.1
"""Error of a predicted share from which on it counts by its size."""
GAE_LAMBDA = 0.95
"""Weight of later steps in an advantage (generalised advantage estimation)."""


@dataclass(frozen=True, slots=True)
class PPOVariant:
    """PPO with parts that can be left out, or exchanged, so that what each of them is worth can be told."""

    imitation: int = 4
    """Gradient steps towards the best episodes so far before each rollout; 0 for none."""
    reward: Reward = "step"
    """The reward of a step."""
    restarts: float = 0.0
    """Share of the episodes that begin on the best path of their window."""
    effects: int = 0
    """Gradient steps of predicting what the steps of a rollout saved, which the encoder learns from too; 0 for none."""

    def __call__(self, run: LearningRun) -> None:
        """Train the policy of a run."""
        env = WindowVecEnv(run.game, run.train, ENVIRONMENTS, run.random, self.reward, self.restarts)
        encoder = run.policy.features_extractor
        assert isinstance(encoder, StateEncoder)
        ppo = MaskablePPO(
            StatePolicy, env, learning_rate=run.settings.learning_rate, n_steps=ROLLOUT, batch_size=BATCH,
            n_epochs=EPOCHS, gamma=1.0, gae_lambda=GAE_LAMBDA, ent_coef=run.settings.entropy,
            max_grad_norm=MAX_GRAD_NORM, seed=run.seed, device="cpu",
            policy_kwargs=policy_arguments(encoder.states, encoder.encoder.config),
        )  # fmt: skip
        assert isinstance(ppo.policy, StatePolicy)
        # The same beginning as that of the other algorithms.
        ppo.policy.load_state_dict(run.policy.state_dict())
        ppo.policy.game, run.policy = run.game, ppo.policy
        ppo.set_logger(configure(None, []))
        ppo.learn(run.settings.steps, callback=_BetweenRollouts(run, env, self))
        run.took(ppo.num_timesteps - run.taken)


class _BetweenRollouts(BaseCallback):
    """Counts steps, imitates the best episodes and learns effects before each rollout: an update between a rollout and
    PPO's own would falsify its ratios."""

    def __init__(self, run: LearningRun, env: WindowVecEnv, variant: PPOVariant) -> None:
        super().__init__()
        self._run, self._env, self._variant = run, env, variant

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps:
            self._run.took(self.num_timesteps - self._run.taken)
        lesson, taken, run = self._env.lesson(), self._env.taken(), self._run
        for _ in range(self._variant.imitation if len(lesson.states) else 0):
            imitate(run.policy, drawn(lesson, BATCH, run.random))
        for _ in range(self._variant.effects if len(taken.states) else 0):
            learn_effects(run, drawn(taken, BATCH, run.random))


def learn_effects(run: LearningRun, steps: Decisions) -> float:
    """Take a gradient step of predicting what steps save, and return the mean error before it, as a share of the
    window's time. Small errors count by their square, large ones by their size: single shares are noisy."""
    saved = torch.from_numpy(run.game.rewards[steps.states, steps.actions]).float()
    predicted = run.policy.savings(*steps)
    run.policy.descend(nn.functional.huber_loss(predicted, saved, delta=LARGE_ERROR) / LARGE_ERROR)
    return float((predicted.detach() - saved).abs().mean())
