"""Training: MaskablePPO on the environment, with progress, checkpoints, a time limit and a clean stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import configure
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from agents.core.config import Config
from agents.ppo.best_path import BestPath, imitate
from agents.ppo.checkpoint import (
    Checkpoint,
    PolicyDescription,
    adapt_weights,
    check_vocabulary,
    load_optimizer,
    save_checkpoint,
)
from agents.ppo.policy import CandidatePolicy
from agents.ppo.progress import TrainingProgress
from envs import GraphRewriteEnv
from envs.observation import feature_sizes
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.latency import Deployment, MeasurementCache, OrtMeter, Plan
from graph_rewrite.task.limits import ResultLimits
from graph_rewrite.task.meters import ort_meter
from graph_rewrite.task.models import Model


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """Options of the command line beside the configuration."""

    uri: str
    """Model to train on."""
    provider: str = "auto"
    threads: int = 1
    deployment_choices: bool = True
    shapes: dict[str, tuple[int, ...]] | None = None
    seed: int = 0
    device: str = "cpu"
    tensorboard_log: Path | None = None
    limits: ResultLimits | None = None
    """Limits of every graph: one beyond a limit ends an episode like one that cannot be run."""


SCREEN_IN_TRAINING = Plan(instances=3, min_pairs=3, target_ci_width=0.03, budget_s=0.12)
"""Half the time of `SCREEN`, a third of which goes into building sessions: a learner averages over many
measurements, and sees twice as many graphs."""


def quick_meter(model: Model, deployment: Deployment, workspace: Path) -> OrtMeter:
    """The meter that environments train with."""
    return ort_meter(model, deployment, workspace, MeasurementCache(), SCREEN_IN_TRAINING)


def make_env(options: TrainingOptions, config: Config) -> Callable[[], gymnasium.Env[Any, Any]]:
    """A factory of monitored environments, picklable for SubprocVecEnv."""

    def build() -> gymnasium.Env[Any, Any]:
        # A process of its own has its own PyTorch: leave the cores to the measurements.
        torch.set_num_threads(1)
        env = BestPath(GraphRewriteEnv(**env_arguments(options, config)), config.training.restarts)
        return Monitor(env, info_keywords=("best_speedup",))

    return build


def env_arguments(options: TrainingOptions, config: Config) -> dict[str, Any]:
    """Keyword arguments of `GraphRewriteEnv`."""
    env = config.env
    return {
        "model": options.uri, "horizon": env.horizon, "feedback_every": env.feedback_every,
        "max_candidates": env.max_candidates, "max_nodes": env.max_nodes, "max_edges": env.max_edges,
        "granularity": env.granularity, "rules": env.rules, "deployment_choices": options.deployment_choices,
        "provider": options.provider, "threads": options.threads, "shapes": options.shapes, "meter": quick_meter,
        "result_limits": options.limits,
    }  # fmt: skip


def policy_arguments(config: Config) -> dict[str, Any]:
    """Keyword arguments of `CandidatePolicy` beyond spaces and learning rate."""
    return {
        "head_layers": config.ppo.head_layers,
        "features_extractor_kwargs": {
            "operators": len(operator_vocabulary()), "rules": len(rule_vocabulary()), "config": config.encoder,
        },
    }  # fmt: skip


class Trainer:
    """Owns the vectorised environment and the PPO model; `run` trains, `save` writes a checkpoint at any time."""

    def __init__(
        self, options: TrainingOptions, config: Config, checkpoint_folder: Path, resume: Checkpoint | None = None
    ) -> None:
        self.options, self.config, self.folder = options, config, checkpoint_folder
        self.progress = TrainingProgress()
        # Returns are percentages of a latency, up to about 50: unscaled, the value loss would drown the policy's
        # gradient in the shared encoder. Observations are scaled already.
        self.env = VecNormalize(self._vectorised(), norm_obs=False, gamma=config.ppo.gamma)
        ppo = config.ppo
        self.ppo = MaskablePPO(
            CandidatePolicy, self.env, learning_rate=ppo.learning_rate, n_steps=ppo.n_steps, batch_size=ppo.batch_size,
            n_epochs=ppo.n_epochs, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip_range,
            ent_coef=ppo.ent_coef, vf_coef=ppo.vf_coef, max_grad_norm=ppo.max_grad_norm, seed=options.seed,
            device=options.device, policy_kwargs=policy_arguments(config),
        )  # fmt: skip
        formats = ["tensorboard"] if options.tensorboard_log is not None else []
        self.ppo.set_logger(configure(str(options.tensorboard_log) if formats else None, formats))
        if resume is not None:
            self._resume(resume)

    def run(self, on_step: Callable[[TrainingProgress], None] | None = None) -> TrainingProgress:
        """Train until `total_timesteps` or `seconds` are reached; KeyboardInterrupt passes through after a save."""
        callbacks: list[BaseCallback] = [_TrainingCallback(self, on_step)]
        if self.config.training.eval_freq > 0:
            callbacks.append(self._evaluation())
        left = max(0, self.config.training.total_timesteps - self.ppo.num_timesteps)
        try:
            if left:
                self.ppo.learn(left, callback=CallbackList(callbacks), reset_num_timesteps=False, log_interval=1)
        finally:
            self.save()
        return self.progress

    def save(self) -> None:
        """Write the checkpoint."""
        save_checkpoint(self.folder, self.describe(), self.policy.weights(), self.policy.optimizer.state_dict())

    @property
    def policy(self) -> CandidatePolicy:
        """The policy being trained."""
        policy = self.ppo.policy
        assert isinstance(policy, CandidatePolicy)
        return policy

    def close(self) -> None:
        """End the environments and their workers."""
        self.env.close()

    def describe(self) -> PolicyDescription:
        """The description that goes into the checkpoint."""
        return PolicyDescription(
            rules=rule_vocabulary(), operators=operator_vocabulary(), features=feature_sizes(),
            encoder=self.config.encoder, head_layers=self.config.ppo.head_layers, env=self.config.env,
            deployment_choices=self.options.deployment_choices, trained_on=self.options.uri,
            timesteps=self.ppo.num_timesteps, best_speedup=self.progress.best_speedup,
        )  # fmt: skip

    def _evaluation(self) -> MaskableEvalCallback:
        """Deterministic episodes now and then, logged as eval/mean_reward."""
        inner = DummyVecEnv([make_env(self.options, self.config)])
        env = VecNormalize(inner, norm_obs=False, norm_reward=False, training=False)
        frequency = max(1, self.config.training.eval_freq // self.config.training.n_envs)
        return MaskableEvalCallback(env, n_eval_episodes=1, eval_freq=frequency, deterministic=True, verbose=0)

    def _vectorised(self) -> VecEnv:
        factories = [make_env(self.options, self.config) for _ in range(self.config.training.n_envs)]
        if len(factories) == 1:
            return DummyVecEnv(factories)
        # "spawn": the parent has threads (PyTorch, the meter's pipes) that a fork would copy half-way.
        return SubprocVecEnv(factories, start_method="spawn")

    def _resume(self, checkpoint: Checkpoint) -> None:
        check_vocabulary(checkpoint.description, rule_vocabulary(), operator_vocabulary())
        rules, operators = rule_vocabulary(), operator_vocabulary()
        self.policy.load_weights(adapt_weights(checkpoint, rules, operators))
        if (checkpoint.description.rules, checkpoint.description.operators) == (rules, operators):
            load_optimizer(checkpoint.path, self.policy.optimizer)
        self.ppo.num_timesteps = checkpoint.description.timesteps
        self.progress.best_speedup = checkpoint.description.best_speedup


class _TrainingCallback(BaseCallback):
    def __init__(self, trainer: Trainer, display: Callable[[TrainingProgress], None] | None) -> None:
        super().__init__()
        self._trainer, self._display = trainer, display
        self._start = time.monotonic()
        self._rewards: list[float] = []
        self._saved = trainer.ppo.num_timesteps

    def _on_step(self) -> bool:
        progress, training = self._trainer.progress, self._trainer.config.training
        progress.timesteps, progress.seconds = self.num_timesteps, time.monotonic() - self._start
        for info in self.locals["infos"]:
            progress.best_speedup = max(progress.best_speedup, float(info["confirmed_speedup"]))
            if "episode" in info:
                self._finish_episode(float(info["episode"]["r"]))
        if self.num_timesteps - self._saved >= training.checkpoint_freq:
            self._saved = self.num_timesteps
            self._trainer.save()
        if self._display is not None:
            self._display(progress)
        return progress.seconds < training.seconds

    def _finish_episode(self, reward: float) -> None:
        progress = self._trainer.progress
        self._rewards.append(reward)
        recent = self._rewards[-20:]
        progress.episodes += 1
        progress.mean_reward = sum(recent) / len(recent)
        progress.curve.append((progress.timesteps, progress.mean_reward, progress.best_speedup))

    def _on_rollout_start(self) -> None:
        # Before the next rollout and not after the last: an update in between would falsify PPO's ratios.
        trainer = self._trainer
        steps = trainer.config.training.imitation_steps
        speedups = [float(value) for value in trainer.env.get_attr("speedup")]
        best = max(range(len(speedups)), key=speedups.__getitem__)
        if steps > 0 and speedups[best] > 1.0:
            (path,) = trainer.env.get_attr("path", indices=best)
            loss = imitate(trainer.policy, path, steps, trainer.config.ppo.max_grad_norm)
            self.logger.record("train/imitation_loss", loss)

    def _on_rollout_end(self) -> None:
        self.logger.record("search/best_speedup", self._trainer.progress.best_speedup)
