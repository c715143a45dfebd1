"""Tree search over graphs: PUCT with what is known beforehand, UCT without."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.config import EnvConfig
from agents.mcts import tree as mcts
from agents.mcts.guide import PolicyGuide, UniformGuide
from agents.mcts.savings import SavingsGuide
from agents.mcts.simulations import Guide, TreeSearch
from agents.mcts.states import EnvState, GraphGame
from agents.mcts.tree import Score
from agents.ppo.acting import LONGEST, acting_env
from agents.ppo.checkpoint import Checkpoint, load_checkpoint
from agents.ppo.description import CheckpointError, shipped_checkpoint
from agents.ppo.threads import one_thread
from agents.regional.prior import prior_of
from agents.universal.prior import UniversalPrior
from envs import GraphRewriteEnv
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import Problem

EXPLORATION = {"uct": 0.5, "puct": 1.25}
"""Default exploration constants; values are scaled to 0..1."""
BY_MEANS = "prior by what rewrites saved in windows of other models"
_CHOICES = {
    "selection": ("auto", "uct", "puct"), "rollouts": ("auto", "random", "policy", "none"),
    "prior": ("auto", "policy", "means", "uniform"),
}  # fmt: skip


class MCTSAgent:
    """Monte Carlo tree search over the environment's states; every new node is measured end to end.

    What is known beforehand gives the priors (PUCT); then there are no rollouts. That is a policy of whole models,
    whose critic tells what is still to be gained, or what the same rewrites saved in the windows of other models.
    Without such knowledge priors are uniform, selection is UCT, and the end of a random rollout is measured as well.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one shipped for the problem's model, if there is one. One
            that was trained on windows predicts what rewrites save there.
        prior: `policy` (there must be a checkpoint), `means` of what steps saved in windows of other models, `uniform`,
            or `auto`: the policy's where there is a checkpoint, else the means.
        selection: `uct`, `puct`, or `auto`: PUCT where the prior is not uniform.
        rollouts: `random`, `policy` (drawn from the prior), `none`, or `auto`: random for a uniform prior, else none.
        critic: let what rewrites saved elsewhere also tell what is still to be gained; a policy's critic always does.
        rollout_depth: rewrites per rollout.
        exploration: exploration constant; 0 takes 0.5 for UCT and 1.25 for PUCT.
        best_share: how much the best of what came back counts against its mean, 0 to 1.
        width, exponent: ceil(width * visits ** exponent) actions of a node are open.
        depth: rewrites on the longest path.

    Raises:
        UserError: an option out of range.
    """

    name = "mcts"

    def __init__(
        self,
        checkpoint: Checkpoint | Path | str | None = None,
        prior: str = "auto",
        selection: str = "auto",
        rollouts: str = "auto",
        critic: bool = False,
        rollout_depth: int = 3,
        exploration: float = 0.0,
        best_share: float = 0.5,
        width: float = 2.0,
        exponent: float = 0.5,
        depth: int = 12,
    ) -> None:
        for option, given in (("prior", prior), ("selection", selection), ("rollouts", rollouts)):
            if given not in _CHOICES[option]:
                raise UserError(f"mcts: {option} must be one of {', '.join(_CHOICES[option])}, not {given!r}")
        if rollout_depth < 1 or depth < 1 or width <= 0.0:
            raise UserError("mcts: rollout_depth and depth must be 1 or more, width above 0")
        if not (0.0 <= best_share <= 1.0 and 0.0 <= exponent <= 1.0 and exploration >= 0.0):
            raise UserError("mcts: best_share and exponent must lie in 0..1, exploration must be 0 or more")
        self._checkpoint, self.prior, self.selection, self.rollouts = checkpoint, prior, selection, rollouts
        self.critic = critic
        self.rollout_depth, self.exploration, self.best_share = rollout_depth, exploration, best_share
        self.depth = depth
        self.allowed: Callable[[int], int] = lambda visits: mcts.widen(visits=visits, width=width, exponent=exponent)

    @one_thread()
    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        checkpoint, said = self._load(problem)
        config = checkpoint.description.env if checkpoint is not None else EnvConfig()
        env = acting_env(problem, config, max(self.depth, LONGEST))
        search = Search(problem, budget, progress)
        guide, uniform = self._guide(search, env, checkpoint), UniformGuide()
        if guide is None:
            guide, said = uniform, "uniform prior"
        rollouts, selection = self.rollouts, self.selection
        if rollouts == "auto":
            rollouts = "random" if guide is uniform else "none"
        if selection == "auto":
            selection = "uct" if guide is uniform else "puct"
        rng = np.random.default_rng(seed)
        with search.running():
            root = EnvState(env, env.reset()[0])
            TreeSearch(GraphGame(search), root, guide, rollouts, self.rollout_depth, rng, uniform).run(
                partial(mcts.select, score=self.score(selection), allowed=self.allowed, depth=self.depth)
            )
        return conclude(search, self.name).remarked(said)

    def score(self, selection: str) -> Score:
        """Return the score by which `uct` or `puct` chooses among the actions of a node."""
        exploration = self.exploration or EXPLORATION[selection]
        return (mcts.uct if selection == "uct" else mcts.puct)(exploration=exploration, best_share=self.best_share)

    def _guide(self, search: Search, env: GraphRewriteEnv, checkpoint: Checkpoint | None) -> Guide[EnvState] | None:
        """Return what is known beforehand; None for nothing."""
        deployment = search.problem.deployment
        if checkpoint is not None:
            if checkpoint.description.trained_in == "windows":
                return SavingsGuide(UniversalPrior(checkpoint, deployment), search, self.critic)
            return PolicyGuide(checkpoint, env)
        prior = None if self.prior == "uniform" else prior_of("means", deployment)
        return None if prior is None else SavingsGuide(prior, search, self.critic)

    def _load(self, problem: Problem) -> tuple[Checkpoint | None, str]:
        """Return the policy, if one is to be used, and a remark on the prior for readers of the result."""
        if self.prior == "uniform":
            return None, "uniform prior"
        if self.prior == "means":
            return None, BY_MEANS
        if isinstance(self._checkpoint, Checkpoint):
            return self._checkpoint, f"prior of {self._checkpoint.path}"
        try:
            checkpoint = load_checkpoint(self._checkpoint or shipped_checkpoint(problem.model.uri))
        except CheckpointError:
            if self.prior == "policy" or self._checkpoint is not None:
                raise
            return None, f"{BY_MEANS}, as there is no checkpoint for this model"
        return checkpoint, f"prior of {checkpoint.path}"
