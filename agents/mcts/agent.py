"""Tree search over graphs: UCT without knowledge, PUCT with a trained policy and its critic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, action_of
from agents.core.config import EnvConfig
from agents.mcts import tree as mcts
from agents.mcts.guide import Guide, PolicyGuide, UniformGuide
from agents.mcts.tree import Score, Selection, Tree, TreeNode
from agents.ppo.acting import LONGEST, acting_env, shipped_checkpoint
from agents.ppo.checkpoint import Checkpoint, CheckpointError, load_checkpoint
from envs import GraphRewriteEnv
from envs.observation import Observation
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Latency
from graph_rewrite.task.problem import Problem

FRUITLESS = 100
"""Simulations in a row that find no new graph, after which the search ends."""
EXPLORATION = {"uct": 0.5, "puct": 1.25}
"""Default exploration constants; values are scaled to 0..1."""
_CHOICES = {
    "selection": ("auto", "uct", "puct"), "rollouts": ("auto", "random", "policy", "none"),
    "prior": ("auto", "policy", "uniform"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class EnvState:
    """A node's state: the environment there, what it observes, and the actions that lead there."""

    env: GraphRewriteEnv
    observation: Observation
    actions: tuple[Action, ...] = ()
    over: bool = False

    @property
    def key(self) -> str:
        return self.env.graph.hash

    def step(self, search: Search, action: int) -> EnvState | None:
        """Return the state after an action; None where it gives no valid graph."""
        search.count_applications()
        env, actions = self.env.fork(), (*self.actions, action_of(self.env.candidates[action]))
        observation, _, terminated, truncated, info = env.step(action)
        return None if info["failure"] else EnvState(env, observation, actions, terminated or truncated)

    def measured(self, latency: Latency) -> EnvState:
        """Return the state as observed after its measurement."""
        return dataclasses.replace(self, observation=self.env.give_feedback(latency), over=self.over or not latency.ok)


class MCTSAgent:
    """Monte Carlo tree search over the environment's states; every new node is measured end to end.

    With a checkpoint for the model, the policy gives the priors (PUCT) and its critic what is still to be gained; no
    rollouts. Without one, priors are uniform, selection is UCT, and the end of a random rollout is measured as well.

    Args:
        checkpoint: a checkpoint or its folder; None takes the one shipped for the problem's model, if there is one.
        prior: `policy` (there must be a checkpoint), `uniform`, or `auto`: the policy's where there is a checkpoint.
        selection: `uct`, `puct`, or `auto`: PUCT where the prior is a policy's.
        rollouts: `random`, `policy` (drawn from the prior), `none`, or `auto`: random without a policy, else none.
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
        self.rollout_depth, self.exploration, self.best_share = rollout_depth, exploration, best_share
        self.depth = depth
        self.allowed: Callable[[int], int] = lambda visits: mcts.widen(visits=visits, width=width, exponent=exponent)

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        checkpoint, said = self._load(problem)
        config = checkpoint.description.env if checkpoint is not None else EnvConfig()
        env = acting_env(problem, config, max(self.depth, LONGEST))
        guide: Guide = UniformGuide() if checkpoint is None else PolicyGuide(checkpoint, env)
        rollouts = self.rollouts
        if rollouts == "auto":
            rollouts = "random" if checkpoint is None else "none"
        search = Search(problem, budget, progress)
        descend = partial(mcts.select, score=self._score(checkpoint), allowed=self.allowed, depth=self.depth)
        with search.running():
            rng = np.random.default_rng(seed)
            _Simulator(search, env, guide, rollouts, self.rollout_depth, rng).run(descend)
        result = conclude(search, self.name)
        return dataclasses.replace(result, message="; ".join(filter(None, (result.message, said))))

    def _score(self, checkpoint: Checkpoint | None) -> Score:
        selection = self.selection
        if selection == "auto":
            selection = "uct" if checkpoint is None else "puct"
        exploration = self.exploration or EXPLORATION[selection]
        return (mcts.uct if selection == "uct" else mcts.puct)(exploration=exploration, best_share=self.best_share)

    def _load(self, problem: Problem) -> tuple[Checkpoint | None, str]:
        """Return the policy, if one is to be used, and a remark on it for readers of the result."""
        if self.prior == "uniform":
            return None, "uniform prior"
        if isinstance(self._checkpoint, Checkpoint):
            return self._checkpoint, f"prior of {self._checkpoint.path}"
        try:
            checkpoint = load_checkpoint(self._checkpoint or shipped_checkpoint(problem.model.uri))
        except CheckpointError:
            if self.prior == "policy" or self._checkpoint is not None:
                raise
            return None, "uniform prior: no checkpoint for this model"
        return checkpoint, f"prior of {checkpoint.path}"


class _Simulator:
    """Runs simulations of a search: keeps the state of every node, measures, and grows the tree."""

    def __init__(
        self, search: Search, env: GraphRewriteEnv, guide: Guide, rollouts: str, depth: int, rng: np.random.Generator
    ) -> None:
        self._search, self._guide, self._rng = search, guide, rng
        self._rollouts, self._depth = rollouts, depth
        self._root = EnvState(env, env.reset()[0])
        self._states: dict[str, EnvState] = {self._root.key: self._root}

    def run(self, descend: Callable[..., Selection]) -> Tree:
        """Simulate until the budget is spent, all states were seen, or nothing new is found any more."""
        search = self._search
        latency = search.measure(self._root.env.graph, ())
        tree = mcts.plant(key=self._root.key, node=self._node(self._root, latency.speedup))
        fruitless = 0
        while not search.exhausted and fruitless < FRUITLESS:
            known = len(tree.nodes)
            tree = self._simulate(tree, descend(tree=tree))
            fruitless = 0 if len(tree.nodes) > known else fruitless + 1
            if fruitless:
                tree = mcts.close(tree=tree)
                if tree.root in tree.closed:
                    break
        return tree

    def _simulate(self, tree: Tree, selection: Selection) -> Tree:
        path, key, action = selection
        if action is None:
            return mcts.backup(tree=tree, path=path, value=tree.nodes[key].known_value)
        state = self._states[key].step(self._search, action)
        if state is None:
            return mcts.discard(tree=tree, parent=key, action=action)
        known = tree.nodes.get(state.key)
        if known is not None:
            tree = mcts.expand(tree=tree, parent=key, action=action, key=state.key, node=known)
            return mcts.backup(tree=tree, path=(*path, (key, action)), value=known.known_value)
        latency = self._search.measure(state.env.graph, state.actions)
        state = state.measured(latency)
        node = self._node(state, latency.speedup) if latency.ok else TreeNode(0.0)
        tree = mcts.expand(tree=tree, parent=key, action=action, key=state.key, node=node)
        self._states[state.key] = state
        value = max(node.value, self._beyond(state, latency.speedup) if latency.ok else 0.0)
        return mcts.backup(tree=tree, path=(*path, (key, action)), value=value)

    def _node(self, state: EnvState, speedup: float) -> TreeNode:
        priors = {} if state.over else self._guide.priors(state.env, state.observation, self._rng)
        return TreeNode(speedup, tuple(priors), priors)

    def _beyond(self, state: EnvState, speedup: float) -> float:
        """Return the speed-up to be had from a new state: measured by a rollout, or expected by the critic."""
        if self._rollouts == "none":
            left = 1.0 / speedup - self._guide.gain(state.observation)
            # No critic is trusted to find more than twice what is there.
            return 1.0 / max(left, 0.5 / speedup)
        end = self._roll_out(state)
        if end is None or not self._search.can_measure:
            return 0.0
        return self._search.measure(end.env.graph, end.actions).speedup

    def _roll_out(self, state: EnvState) -> EnvState | None:
        """Return the state after up to `depth` further rewrites; None where there are none."""
        uniform = UniformGuide()
        end = state
        for _ in range(self._depth):
            if end.over or not self._search.can_apply:
                break
            guide = self._guide if self._rollouts == "policy" else uniform
            priors = guide.priors(end.env, end.observation, self._rng)
            if not priors:
                break
            weights = np.fromiter(priors.values(), np.float64)
            action = int(self._rng.choice(np.fromiter(priors, np.intp), p=weights / weights.sum()))
            after = end.step(self._search, action)
            if after is None:
                break
            end = after
        return None if end is state else end
