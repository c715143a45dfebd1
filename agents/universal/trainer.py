"""Training of the universal policy: imitation of the best chains of a table of windows, then PPO on the table."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from agents.core.config import Config, ConfigError
from agents.ppo.checkpoint import Checkpoint, check_episodes, save_checkpoint
from agents.ppo.description import PolicyDescription
from agents.ppo.progress import TrainingProgress
from agents.ppo.trainer import maskable_ppo, take_up_policy
from agents.ppo.training_state import TrainingState, load_state, save_state
from agents.universal.decisions import TableDecision, decisions_of
from agents.universal.observations import UnmeasuredWindows
from agents.universal.policy import WindowPolicy
from agents.universal.pretraining import Lessons
from envs.feature_sets import feature_widths
from envs.vocabulary import NO_OP, operator_vocabulary, rule_vocabulary
from envs.window import WindowTable, WindowTableEnv
from envs.window.joining import joined
from envs.window.table import SHIPPED

AFTER = ", after "
"""Stands in `trained_on` between what a policy learnt last and what it had learnt before."""

OnStep = Callable[[TrainingProgress], None]


@dataclass(frozen=True, slots=True)
class WindowTrainingOptions:
    """Options of a training on windows beside the configuration."""

    table: WindowTable
    name: str
    """Names the table in the checkpoint."""
    without: tuple[str, ...] = ()
    """Architectures whose windows are left out."""
    seed: int = 0
    device: str = "cpu"
    tensorboard_log: Path | None = None
    rehearsed: Sequence[TableDecision] = ()
    """Decisions in windows of other tables, which are imitated too: so a policy that learns something new does not
    forget what it knew."""

    @classmethod
    def load(cls, tables: Sequence[Path], without: Sequence[str], seed: int = 0, device: str = "cpu") -> Self:
        """Return the options of a training on the files of tables; by default on the one that ships.

        Raises:
            UserError: a file cannot be read, or is no table of windows.
        """
        paths = list(tables) or [SHIPPED]
        table, name = joined([WindowTable.load(path) for path in paths]), ", ".join(path.name for path in paths)
        return cls(table, name, tuple(sorted(set(without))), seed, device)


class WindowTrainer:
    """Owns the environments and the policy; `run` trains, `save` writes a checkpoint at any time.

    Args:
        options: the table, and what is left out of it.
        config: settings, as `configs/windows.yaml` has them.
        checkpoint_folder: where checkpoints are written.
        resume: a checkpoint of a training on windows to go on from. Of another table it is what `taught` is.
        taught: a policy of windows that a training begins with, in place of random weights; not beside `resume`.

    Raises:
        ConfigError: the feature set is not `full`.
        CheckpointError: a checkpoint is of no training on windows, or does not fit.
        UserError: no window of the table is left.
    """

    def __init__(
        self,
        options: WindowTrainingOptions,
        config: Config,
        checkpoint_folder: Path,
        resume: Checkpoint | None = None,
        taught: Checkpoint | None = None,
    ) -> None:
        if config.env.features != "full":
            raise ConfigError("a table of windows holds the features of env.features=full, not plain")
        for checkpoint in filter(None, (resume, taught)):
            check_episodes(checkpoint, "windows")
        self.options, self.config, self.folder, self.taught = options, config, checkpoint_folder, taught
        self.progress = TrainingProgress()
        inner = WindowTableEnv(
            options.table, horizon=config.env.horizon, without=options.without, least_chains=1
        )  # fmt: skip
        self.windows = inner.windows
        """Numbers of the windows that are learnt from."""
        make = partial(_environment, options, config)
        self.env = DummyVecEnv([make for _ in range(config.training.n_envs)])
        self.ppo = maskable_ppo(WindowPolicy, self.env, config, options.seed, options.device, options.tensorboard_log)
        decisions = [*decisions_of(options.table, self.windows, config.env.horizon), *options.rehearsed]
        self.lessons = Lessons(self.policy, decisions, config.pretraining, config.ppo.max_grad_norm, options.seed)
        if taught is not None:
            take_up_policy(taught, self.policy)
        if resume is not None:
            self._resume(resume)

    @property
    def policy(self) -> WindowPolicy:
        """The policy being trained."""
        policy = self.ppo.policy
        assert isinstance(policy, WindowPolicy)
        return policy

    def run(self, on_step: OnStep | None = None) -> TrainingProgress:
        """Train until all epochs and steps are done, or the seconds are spent; KeyboardInterrupt passes through after a
        save.

        Args:
            on_step: told of the progress after each batch of imitation and each step of PPO.
        """
        begin, told = time.monotonic(), on_step or (lambda progress: None)
        try:
            if self._pretrain(begin, told):
                left = max(0, self.config.training.total_timesteps - self.ppo.num_timesteps)
                if left:
                    callback = _Callback(self, begin, told)
                    self.ppo.learn(left, callback=callback, reset_num_timesteps=False, log_interval=1)
        finally:
            self.save()
        return self.progress

    def save(self) -> None:
        """Write the checkpoint, the state of the training included."""
        self.folder.mkdir(parents=True, exist_ok=True)
        save_state(self.folder, TrainingState(self.trained_on, progress=copy.copy(self.progress)))
        save_checkpoint(self.folder, self.describe(), self.policy.weights(), self.policy.optimizer.state_dict())

    def close(self) -> None:
        """End the environments."""
        self.env.close()

    @property
    def trained_on(self) -> str:
        """The table and the windows of it that are learnt from, and what the policy had learnt from before."""
        windows = f"{len(self.windows)} windows of {len(self._families())} architectures in {self.options.name}"
        return windows if self.taught is None else f"{windows}{AFTER}{self.taught.description.trained_on}"

    def describe(self) -> PolicyDescription:
        """Return the description that goes into the checkpoint."""
        limits, env, rules = self.options.table.limits, self.config.env, rule_vocabulary()
        shown = replace(
            env, max_candidates=limits.max_candidates, max_nodes=limits.max_nodes, max_edges=limits.max_edges
        )  # fmt: skip
        offered = self._offered()
        left_out: Sequence[str] = self.options.without
        if self.taught is not None:  # what it has learnt before it knows, whatever is left out now
            left_out = sorted({*self.taught.description.left_out} - self._families())
        return PolicyDescription(
            rules=rules, offered=tuple(rule for rule in rules if rule in offered), operators=operator_vocabulary(),
            features=feature_widths("full"), encoder=self.config.encoder, head_layers=self.config.ppo.head_layers,
            env=shown, deployment_choices=False, trained_on=self.trained_on, timesteps=self.ppo.num_timesteps,
            trained_in="windows", left_out=tuple(left_out),
        )  # fmt: skip

    def _families(self) -> set[str]:
        """Return the architectures of the windows that are learnt from."""
        return {self.options.table.windows[number].family for number in self.windows}

    def _offered(self) -> set[str]:
        """Return the names of the rules of the steps that are or were learnt from, and of the stop."""
        numbers = {rule for one in self.lessons.decisions for rule in one.sample.observation["candidate_rule"].tolist()}
        before: tuple[str, ...] = ()
        if self.taught is not None:
            described = self.taught.description
            before = described.rules if described.offered is None else described.offered
        return {*before, *(rule_vocabulary()[number] for number in numbers if number >= NO_OP)}

    def _pretrain(self, begin: float, told: OnStep) -> bool:
        """Imitate, and predict effects, for the epochs that are left. Return whether the seconds allow for more."""
        training, log = self.config.training, self.ppo.logger
        for epoch in range(self.progress.epochs, self.config.pretraining.epochs):
            losses = []
            for loss in self.lessons.epoch(epoch):
                losses.append(loss)
                self.progress.seconds = time.monotonic() - begin
                told(self.progress)
                if self.progress.seconds >= training.seconds:
                    return False
            self.progress.epochs = epoch + 1
            log.record("pretraining/imitation_loss", sum(losses) / len(losses))
            log.dump(self.progress.epochs)
        return True

    def _resume(self, checkpoint: Checkpoint) -> None:
        """Go on with a policy, and with its training where that was on the same windows."""
        take_up_policy(checkpoint, self.policy)
        state, described = load_state(checkpoint.path), checkpoint.description
        last, _, earlier = described.trained_on.partition(AFTER)
        if state is not None and last == self.trained_on:
            self.progress, self.ppo.num_timesteps = state.progress, described.timesteps
        else:
            earlier = described.trained_on
        if earlier:
            self.taught = replace(checkpoint, description=replace(described, trained_on=earlier))


def _environment(options: WindowTrainingOptions, config: Config) -> Monitor[Any, Any]:
    torch.set_num_threads(1)  # the batches are small: more threads wait for each other
    inner = WindowTableEnv(options.table, horizon=config.env.horizon, without=options.without, least_chains=1)
    return Monitor(UnmeasuredWindows(inner))


class _Callback(BaseCallback):
    """Keeps the progress, saves now and then, ends at the time limit, and goes over the lessons between rollouts."""

    def __init__(self, trainer: WindowTrainer, begin: float, told: OnStep) -> None:
        super().__init__()
        self._trainer, self._begin, self._told = trainer, begin, told
        self._saved = trainer.progress.timesteps
        self._returns: list[float] = []
        """Of the episodes that this rollout has finished: the shares that their chains saved."""

    def _on_step(self) -> bool:
        progress, training = self._trainer.progress, self._trainer.config.training
        progress.timesteps, progress.seconds = self.num_timesteps, time.monotonic() - self._begin
        self._returns += [float(info["episode"]["r"]) for info in self.locals["infos"] if "episode" in info]
        if self.num_timesteps - self._saved >= training.checkpoint_freq:
            self._saved = self.num_timesteps
            self._trainer.save()
        self._told(progress)
        return progress.seconds < training.seconds

    def _on_rollout_start(self) -> None:
        self._returns = []
        # Before the next rollout and not after the last: an update in between would falsify PPO's ratios.
        trainer = self._trainer
        steps, rate = trainer.config.training.imitation_steps, trainer.config.ppo.learning_rate
        if steps > 0:
            loss = trainer.lessons.revise(steps, self.num_timesteps, rate)
            self.logger.record("train/imitation_loss", loss)

    def _on_rollout_end(self) -> None:
        progress = self._trainer.progress
        progress.episodes, progress.recent = progress.episodes + len(self._returns), self._returns
        progress.curve.append((progress.timesteps, progress.mean_reward, progress.best_speedup))
