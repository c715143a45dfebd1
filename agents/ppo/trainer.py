"""Training: MaskablePPO on the environment, with progress, checkpoints, a time limit and a clean stop."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.callbacks import MaskableEvalCallback
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.logger import configure
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv, VecEnv, VecNormalize

from agents.core.config import Config
from agents.ppo.callback import TrainingCallback
from agents.ppo.checkpoint import Checkpoint, adapt_weights, check_episodes, load_optimizer, save_checkpoint
from agents.ppo.description import CheckpointError, PolicyDescription, check_vocabulary
from agents.ppo.environments import TrainingOptions, make_env
from agents.ppo.policy import CandidatePolicy
from agents.ppo.progress import TrainingProgress
from agents.ppo.training_state import FILE, RewardScale, TrainingState, load_state, save_state
from envs.feature_sets import feature_widths
from envs.vocabulary import operator_vocabulary, rule_vocabulary


def policy_arguments(config: Config) -> dict[str, Any]:
    """Keyword arguments of `CandidatePolicy` beyond spaces and learning rate."""
    return {
        "head_layers": config.ppo.head_layers,
        "features_extractor_kwargs": {
            "operators": len(operator_vocabulary()), "rules": len(rule_vocabulary()), "config": config.encoder,
        },
    }  # fmt: skip


def maskable_ppo(
    policy: type[CandidatePolicy], env: VecEnv, config: Config, seed: int, device: str, tensorboard_log: Path | None
) -> MaskablePPO:
    """Return MaskablePPO with a fresh policy, which logs to TensorBoard where a folder is given."""
    ppo = config.ppo
    made = MaskablePPO(
        policy, env, learning_rate=ppo.learning_rate, n_steps=ppo.n_steps, batch_size=ppo.batch_size,
        n_epochs=ppo.n_epochs, gamma=ppo.gamma, gae_lambda=ppo.gae_lambda, clip_range=ppo.clip_range,
        ent_coef=ppo.ent_coef, vf_coef=ppo.vf_coef, max_grad_norm=ppo.max_grad_norm, seed=seed,
        device=device, policy_kwargs=policy_arguments(config),
    )  # fmt: skip
    formats = ["tensorboard"] if tensorboard_log is not None else []
    made.set_logger(configure(str(tensorboard_log) if formats else None, formats))
    return made


def take_up_policy(checkpoint: Checkpoint, policy: CandidatePolicy) -> None:
    """Fill a policy, and its optimiser where the vocabularies are the same, with those of a checkpoint.

    Raises:
        CheckpointError: it was trained with rules or operators that are gone, or with a network of another shape.
    """
    rules, operators, described = rule_vocabulary(), operator_vocabulary(), checkpoint.description
    check_vocabulary(described, rules, operators)
    try:
        policy.load_weights(adapt_weights(checkpoint, rules, operators))
    except RuntimeError as error:
        raise CheckpointError(f"{checkpoint.path}: its network has another shape than this configuration's") from error
    if (described.rules, described.operators) == (rules, operators):
        load_optimizer(checkpoint.path, policy.optimizer)


class Trainer:
    """Owns the vectorised environment and the PPO model; `run` trains, `save` writes a checkpoint at any time."""

    def __init__(
        self, options: TrainingOptions, config: Config, checkpoint_folder: Path, resume: Checkpoint | None = None
    ) -> None:
        self.options, self.config, self.folder = options, config, checkpoint_folder
        self.progress = TrainingProgress()
        self.offered: set[int] = set()
        """Indices of the rules that were legal in some state of this training."""
        self._paths: tuple[Mapping[str, Any], ...] = ()
        # Returns are percentages of a latency, up to about 50: unscaled, the value loss would drown the policy's
        # gradient in the shared encoder. Observations are scaled already.
        self.env = VecNormalize(self._vectorised(), norm_obs=False, gamma=config.ppo.gamma)
        self.ppo = maskable_ppo(
            CandidatePolicy, self.env, config, options.seed, options.device, options.tensorboard_log
        )
        if resume is not None:
            self._resume(resume)

    def run(self, on_step: Callable[[TrainingProgress], None] | None = None) -> TrainingProgress:
        """Train until `total_timesteps` or `seconds` are reached; KeyboardInterrupt passes through after a save."""
        callbacks: list[BaseCallback] = [TrainingCallback(self, on_step)]
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
        """Write the checkpoint, the state of the training included."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_state(self.folder, self.state())
        save_checkpoint(self.folder, self.describe(), self.policy.weights(), self.policy.optimizer.state_dict())

    def state(self) -> TrainingState:
        """Return what a resumed training takes up again, beside the policy."""
        returns = self.env.ret_rms
        scale = RewardScale(float(returns.mean), float(returns.var), float(returns.count))
        with suppress(EOFError, OSError):  # of a process that has died, the best path stays as it was saved last
            self._paths = tuple(record for record in self.env.env_method("record") if record is not None)
        return TrainingState(self.options.uri, scale, self._paths, copy.copy(self.progress))

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
        rules = rule_vocabulary()
        return PolicyDescription(
            rules=rules, offered=tuple(rules[index] for index in sorted(self.offered)), operators=operator_vocabulary(),
            features=feature_widths(self.config.env.features), encoder=self.config.encoder,
            head_layers=self.config.ppo.head_layers, env=self.config.env,
            deployment_choices=self.options.deployment_choices, trained_on=self.options.uri,
            timesteps=self.ppo.num_timesteps, best_speedup=self.progress.best_speedup,
        )  # fmt: skip

    def _evaluation(self) -> MaskableEvalCallback:
        """Deterministic episodes from the start now and then, logged as eval/mean_reward."""
        inner = DummyVecEnv([make_env(self.options, self.config, evaluation=True)])
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
        check_episodes(checkpoint, "models")
        take_up_policy(checkpoint, self.policy)
        known = checkpoint.description.offered
        self.offered = {index for index, rule in enumerate(rule_vocabulary()) if known is None or rule in known}
        if checkpoint.description.trained_on == self.options.uri:
            self.ppo.num_timesteps = checkpoint.description.timesteps
            self.progress.best_speedup = checkpoint.description.best_speedup
            self._take_up(checkpoint.path)

    def _take_up(self, folder: Path) -> None:
        """Go on with the reward's scale, the best paths and the curve of a training on the same model."""
        state = load_state(folder)
        if state is None:
            return
        self.progress = state.progress
        scale, returns = state.reward_scale, self.env.ret_rms
        returns.mean, returns.var = np.array(scale.mean), np.array(scale.variance)
        returns.count = scale.count
        for number in range(self.env.num_envs) if state.paths else ():
            try:
                self.env.env_method("go_on", state.paths[number % len(state.paths)], indices=number)
            except (KeyError, TypeError, ValueError) as error:
                raise CheckpointError(f"{folder / FILE}: holds a best path that is none ({error!r})") from error
        self.progress.best_speedup = max(float(speedup) for speedup in self.env.get_attr("speedup"))
