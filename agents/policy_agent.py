"""The agent `ppo`: a trained policy at work, in whole graphs or in windows, as it was trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

from agents.core.base import Budget, OptimizationResult, Search
from agents.ppo.agent import DEFAULTS, PPOAgent, RolloutOptions
from agents.ppo.checkpoint import Checkpoint, load_checkpoint
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from agents.regional.prior import proposing
from agents.universal.prior import UniversalPrior
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import Problem


class PolicyAgent:
    """Acts with a policy as it was trained. One of whole models rolls out in the whole graph (`PPOAgent`). One of
    windows proposes chains of rewrites for all windows of a model before anything is measured; a search by windows
    times them, those first that are predicted to save most per second, puts them together, and goes on as it does
    without a policy (`RegionalAgent`): every rewrite that is not proposed is tried in the same order, and the same
    judgement decides.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one that ships for the problem's model, or another
            (`agents.ppo.acting.fitting_checkpoint`).
        options: settings of the rollouts in whole graphs.
    """

    name = "ppo"

    def __init__(self, checkpoint: Checkpoint | Path | str | None = None, options: RolloutOptions = DEFAULTS) -> None:
        given = checkpoint or None
        self.checkpoint = load_checkpoint(given) if isinstance(given, str | Path) else given
        self.options = options
        if self._by_windows and options != DEFAULTS:
            raise UserError(
                f"agent ppo: {', '.join(_changed(options))} is for policies of whole models, and "
                f"{self.checkpoint_name} was trained on windows: leave it out"
            )

    @property
    def checkpoint_name(self) -> str:
        """The folder of the checkpoint that was given; empty for none."""
        return "" if self.checkpoint is None else str(self.checkpoint.path)

    @property
    def _by_windows(self) -> bool:
        return self.checkpoint is not None and self.checkpoint.description.trained_in == "windows"

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget with the policy, then validate."""
        checkpoint = self.checkpoint
        if checkpoint is None or not self._by_windows:
            rollouts = PPOAgent(checkpoint, self.options)
            rollouts.name = self.name
            return rollouts.optimize(problem, budget, seed=seed, progress=progress)
        search = RegionalAgent(RegionalOptions(prior="universal"))
        search.name, search.prior_for = self.name, lambda one: proposing(UniversalPrior(checkpoint, one.deployment))
        result = search.optimize(problem, budget, seed=seed, progress=progress)
        said = f"chains proposed by {self.checkpoint_name}, trained on {checkpoint.description.trained_on}"
        return dataclasses.replace(result, message="; ".join(filter(None, (result.message, said))))


def _changed(options: RolloutOptions) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != getattr(DEFAULTS, field.name)
    ]  # fmt: skip
