"""The agent `ppo`: a trained policy at work, in whole graphs or in windows, as it was trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from agents.core.base import Budget, OptimizationResult, Search
from agents.ppo.acting import ships_for
from agents.ppo.agent import DEFAULTS, PPOAgent, RolloutOptions
from agents.ppo.checkpoint import Checkpoint, CheckpointError, check_vocabulary, load_checkpoint
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from agents.regional.prior import proposing
from agents.searching.known_starts import Start
from agents.universal.prior import UniversalPrior, shipped_policy
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import Problem


class PolicyAgent:
    """Acts with a policy as it was trained. One of whole models rolls out in the whole graph (`PPOAgent`). One of
    windows proposes chains of rewrites for all windows of a model before anything is measured; a search by windows
    times them, those first that are predicted to save most per second, puts them together, and goes on as it does
    without a policy (`RegionalAgent`): every rewrite that is not proposed is tried in the same order, and the same
    judgement decides.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one that ships for the problem's model, or else the
            universal one, which was trained on windows.
        options: settings of the rollouts in whole graphs; others than the defaults ask for such rollouts.
    """

    name = "ppo"

    def __init__(self, checkpoint: Checkpoint | Path | str | None = None, options: RolloutOptions = DEFAULTS) -> None:
        given = checkpoint or None
        self.checkpoint = load_checkpoint(given) if isinstance(given, str | Path) else given
        self.options = options
        self.starts: Sequence[Start] = ()
        """Graphs that a search with a policy of windows begins with, beside the problem's own."""
        if _by_windows(self.checkpoint) and options != DEFAULTS:
            raise UserError(
                f"agent ppo: {', '.join(_changed(options))} is for policies of whole models, and "
                f"{self.checkpoint_name} was trained on windows: leave it out"
            )

    @property
    def checkpoint_name(self) -> str:
        """The folder of the checkpoint that was given; empty for none."""
        return "" if self.checkpoint is None else str(self.checkpoint.path)

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget with the policy, then validate."""
        checkpoint = self._checkpoint_for(problem)
        if checkpoint is None or not _by_windows(checkpoint):
            rollouts = PPOAgent(checkpoint, self.options)
            rollouts.name = self.name
            return rollouts.optimize(problem, budget, seed=seed, progress=progress)
        search = RegionalAgent(RegionalOptions(prior="universal"))
        search.starts = self.starts
        search.name = self.name
        search.prior_for = lambda one: proposing(UniversalPrior(checkpoint, one.deployment), one.deployment)
        result = search.optimize(problem, budget, seed=seed, progress=progress)
        said = f"chains proposed by {checkpoint.path}, trained on {checkpoint.description.trained_on}"
        return result.remarked(said)

    def _checkpoint_for(self, problem: Problem) -> Checkpoint | None:
        """Return the checkpoint for a model; None where rollouts in its graph find their own."""
        if self.checkpoint is not None or self.options != DEFAULTS or ships_for(problem.model.uri):
            return self.checkpoint
        try:
            universal = shipped_policy()
            check_vocabulary(universal.description, rule_vocabulary(), operator_vocabulary())
        except CheckpointError:  # none ships, or one of other rules
            return None
        return universal


def _by_windows(checkpoint: Checkpoint | None) -> bool:
    return checkpoint is not None and checkpoint.description.trained_in == "windows"


def _changed(options: RolloutOptions) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != getattr(DEFAULTS, field.name)
    ]  # fmt: skip
