"""The agent `ppo`: a trained policy at work, in whole graphs or in windows, as it was trained."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from agents.core.base import Budget, OptimizationResult, Search
from agents.core.paths import checkpoints
from agents.ppo.description import (
    UNIVERSAL,
    CheckpointError,
    PolicyDescription,
    check_vocabulary,
    read_description,
    ships_for,
)
from agents.ppo.options import DEFAULTS, RolloutOptions
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from agents.regional.prior import PolicyOnDemand, proposing
from agents.searching.known_starts import Start
from envs.vocabulary import operator_vocabulary, rule_vocabulary
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.problem import Problem

if TYPE_CHECKING:
    from agents.ppo.checkpoint import Checkpoint
    from agents.universal.prior import UniversalPrior


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
        self.checkpoint, self.options = checkpoint or None, options
        self._given = None if self.checkpoint is None else StoredPolicy.of(self.checkpoint)
        self.starts: Sequence[Start] = ()
        """Graphs that a search with a policy of windows begins with, beside the problem's own."""
        if self._given is not None and self._given.is_by_windows and options != DEFAULTS:
            raise UserError(
                f"agent ppo: {', '.join(_changed(options))} is for policies of whole models, and "
                f"{self.checkpoint_name} was trained on windows: leave it out"
            )

    @property
    def checkpoint_name(self) -> str:
        """The folder of the checkpoint that was given; empty for none."""
        return "" if self._given is None else str(self._given.folder)

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget with the policy, then validate."""
        policy = self._policy_for(problem)
        if policy is None or not policy.is_by_windows:
            from agents.ppo.agent import PPOAgent  # imports PyTorch, which takes seconds

            rollouts = PPOAgent(self.checkpoint, self.options)
            rollouts.name = self.name
            return rollouts.optimize(problem, budget, seed=seed, progress=progress)
        proposer = PolicyOnDemand(lambda: policy.prior(problem.deployment))
        search = RegionalAgent(RegionalOptions(prior="universal"))
        search.starts = self.starts
        search.name = self.name
        search.prior_for = lambda one: proposing(proposer, one.deployment)
        result = search.optimize(problem, budget, seed=seed, progress=progress)
        if not proposer.was_asked:
            return result.remarked(f"no time was left for chains that {policy.folder} proposes")
        return result.remarked(f"chains proposed by {policy.folder}, trained on {policy.description.trained_on}")

    def _policy_for(self, problem: Problem) -> StoredPolicy | None:
        """Return the policy for a model; None where rollouts in its graph find their own.

        Raises:
            CheckpointError: the one that was given knows rules or operators that are gone.
        """
        if self._given is not None:
            self._given.check()
            return self._given
        if self.options != DEFAULTS or ships_for(problem.model.uri):
            return None
        try:
            universal = StoredPolicy.of(checkpoints() / UNIVERSAL)
            universal.check()
        except CheckpointError:  # none ships, or one of other rules
            return None
        return universal


@dataclass(frozen=True, slots=True)
class StoredPolicy:
    """A policy that is not loaded yet, or only in memory: where its checkpoint lies, and what that says of it."""

    folder: Path
    description: PolicyDescription
    checkpoint: Checkpoint | None = None

    @classmethod
    def of(cls, checkpoint: Checkpoint | Path | str) -> Self:
        """Return the policy of a checkpoint or its folder.

        Raises:
            CheckpointError: a file is missing, truncated or of another format, or describes what nobody trains.
        """
        if isinstance(checkpoint, Path | str):
            return cls(*read_description(checkpoint))
        return cls(checkpoint.path, checkpoint.description, checkpoint)

    @property
    def is_by_windows(self) -> bool:
        return self.description.trained_in == "windows"

    def check(self) -> None:
        """Check that the rules and operators that it knows are still there.

        Raises:
            CheckpointError: some are gone.
        """
        check_vocabulary(self.description, rule_vocabulary(), operator_vocabulary())

    def prior(self, deployment: Deployment) -> UniversalPrior:
        """Load a policy of windows."""
        from agents.ppo.checkpoint import load_checkpoint  # imports PyTorch, which takes seconds
        from agents.universal.prior import UniversalPrior

        return UniversalPrior(self.checkpoint or load_checkpoint(self.folder), deployment)


def _changed(options: RolloutOptions) -> list[str]:
    return [
        field.name
        for field in dataclasses.fields(options)
        if getattr(options, field.name) != getattr(DEFAULTS, field.name)
    ]  # fmt: skip
