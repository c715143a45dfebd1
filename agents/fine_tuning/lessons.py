"""Learning from experience: a table of what was timed, and decisions of the table that ships beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import numpy as np

from agents.core.config import Config
from agents.ppo.checkpoint import Checkpoint
from agents.ppo.description import PolicyDescription
from agents.universal.decisions import TableDecision, decisions_of
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from envs.window.table import SHIPPED, WindowTable


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """Windows that a policy has learnt from before, some of which are repeated while it learns something new.

    Args:
        table: of these windows.
        windows: how many are repeated, drawn by the seed.
        seed: of the draw.
    """

    table: WindowTable
    windows: int
    seed: int = 0

    @classmethod
    def of_shipped(cls, windows: int, seed: int) -> Self:
        """Return so many windows of the table that ships."""
        return cls(WindowTable.load(SHIPPED), windows, seed)

    def decisions(self, horizon: int) -> list[TableDecision]:
        """Return the decisions in the windows that are repeated."""
        there = len(self.table.windows)
        drawn = np.random.default_rng(self.seed).choice(there, min(self.windows, there), replace=False)
        return decisions_of(self.table, sorted(drawn.tolist()), horizon) if len(drawn) else []


def fine_tuning_config(config: Config, described: PolicyDescription, seconds: float) -> Config:
    """Return the settings of one lesson: those of `configs/windows.yaml`, with the network and the episodes of the
    policy that goes on to learn.

    Args:
        config: settings of a training on windows.
        described: the policy.
        seconds: that the lesson may take.
    """
    tuning = config.fine_tuning
    return replace(
        config,
        env=replace(config.env, horizon=described.env.horizon, features=described.env.features),
        encoder=described.encoder,
        ppo=replace(config.ppo, head_layers=described.head_layers, learning_rate=tuning.learning_rate),
        training=replace(config.training, total_timesteps=tuning.timesteps, seconds=seconds),
        pretraining=replace(config.pretraining, epochs=tuning.epochs, learning_rate=tuning.learning_rate),
    )


def lesson(
    table: WindowTable, name: str, config: Config, folder: Path, taught: Checkpoint, rehearsed: list[TableDecision],
    seed: int, device: str, tensorboard_log: Path | None, resumed: bool = False,
) -> WindowTrainer:  # fmt: skip
    """Return the training of one lesson; it writes its checkpoint into `folder`.

    Args:
        table: what is learnt.
        name: names the table in the checkpoint.
        config: `fine_tuning_config`.
        taught: the policy that goes on to learn.
        rehearsed: decisions that are repeated.
        resumed: go on with the lesson itself where the policy was in the middle of this one.
    """
    options = WindowTrainingOptions(
        table, name, seed=seed, device=device, tensorboard_log=tensorboard_log, rehearsed=rehearsed
    )  # fmt: skip
    if resumed:
        return WindowTrainer(options, config, folder, resume=taught)
    return WindowTrainer(options, config, folder, taught=taught)
