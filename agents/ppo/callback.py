"""The work of a training run beside PPO itself, step by step: progress, checkpoints, the time limit, imitation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

import numpy as np
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize

from agents.core.config import Config
from agents.ppo.imitation import imitate
from agents.ppo.policy import CandidatePolicy
from agents.ppo.progress import TrainingProgress


class Training(Protocol):
    """The parts of a `Trainer` that its callback needs."""

    progress: TrainingProgress
    config: Config
    env: VecNormalize
    offered: set[int]

    @property
    def policy(self) -> CandidatePolicy:
        """The policy being trained."""
        ...

    def save(self) -> None:
        """Write the checkpoint."""
        ...


class TrainingCallback(BaseCallback):
    """Keeps `Training.progress` and `Training.offered`, saves, ends at the time limit, and imitates the best path."""

    def __init__(self, trainer: Training, display: Callable[[TrainingProgress], None] | None) -> None:
        super().__init__()
        self._trainer, self._display = trainer, display
        self._start = time.monotonic()
        self._saved = trainer.progress.timesteps

    def _on_step(self) -> bool:
        progress, training = self._trainer.progress, self._trainer.config.training
        progress.timesteps, progress.seconds = self.num_timesteps, time.monotonic() - self._start
        rules = self.locals["obs_tensor"]["candidate_rule"].cpu().numpy()
        self._trainer.offered.update(np.unique(rules[self.locals["action_masks"]]).astype(int).tolist())
        improved = False
        for info in self.locals["infos"]:
            improved = improved or float(info["confirmed_speedup"]) > progress.best_speedup
            progress.best_speedup = max(progress.best_speedup, float(info["confirmed_speedup"]))
            if "episode" in info:
                progress.finish_episode(float(info["episode"]["r"]), info["restarted"])
                if info["restarted"]:
                    # Stable-Baselines3 averages what it finds there: rewards from the start and others do not mix.
                    info["restarted_episode"] = info.pop("episode")
        if improved or self.num_timesteps - self._saved >= training.checkpoint_freq:
            self._saved = self.num_timesteps
            self._trainer.save()
        if self._display is not None:
            self._display(progress)
        return progress.seconds < training.seconds

    def _on_rollout_start(self) -> None:
        # Before the next rollout and not after the last: an update in between would falsify PPO's ratios.
        trainer = self._trainer
        steps = trainer.config.training.imitation_steps
        speedups = [float(value) for value in trainer.env.get_attr("speedup")]
        best = max(range(len(speedups)), key=speedups.__getitem__)
        if steps > 0 and speedups[best] > 1.0:
            (lesson,) = trainer.env.get_attr("lesson", indices=best)
            ppo = trainer.config.ppo
            loss = imitate(trainer.policy, lesson, steps, ppo.max_grad_norm, ppo.batch_size)
            self.logger.record("train/imitation_loss", loss)

    def _on_rollout_end(self) -> None:
        self.logger.record("search/best_speedup", self._trainer.progress.best_speedup)
