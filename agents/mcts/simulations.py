"""Simulations of a tree search: descend, take an action, measure what it leads to, and back up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, Self, TypeVar

import numpy as np

from agents.mcts import tree as mcts
from agents.mcts.tree import Selection, Tree, TreeNode
from graph_rewrite.latency import Latency

FRUITLESS = 100
"""Simulations in a row that find no new graph, after which the search ends."""


class SearchState(Protocol):
    """A state as a tree search keeps it; `agents.mcts.states.EnvState` is one."""

    @property
    def key(self) -> str:
        """Equal for equal states."""
        ...

    @property
    def over(self) -> bool:
        """True where no action follows."""
        ...

    def measured(self, latency: Latency) -> Self:
        """Return the state as observed after its measurement."""
        ...


S = TypeVar("S", bound=SearchState)


class Game(Protocol[S]):
    """A game that a tree search plays; `agents.mcts.states.GraphGame` is one."""

    @property
    def can_measure(self) -> bool:
        """True while the budget has a measurement left."""
        ...

    @property
    def can_step(self) -> bool:
        """True while the budget has an action left."""
        ...

    def step(self, state: S, action: int) -> S | None:
        """Return the state after an action; None where there is none."""
        ...

    def measure(self, state: S) -> Latency:
        """Return what a state costs."""
        ...


Observed = TypeVar("Observed", bound=SearchState, contravariant=True)


class Guide(Protocol[Observed]):
    """Prior knowledge about a state."""

    def priors(self, state: Observed, rng: np.random.Generator) -> dict[int, float]:
        """Return the legal actions without the No-Op, in the order in which they are to be opened, with
        probabilities."""
        ...

    def gain(self, state: Observed, speedup: float) -> float:
        """Return the share of the original's latency that can still be saved from a state of this speed-up, as far as
        the guide knows; 0 or more."""
        ...


class TreeSearch(Generic[S]):
    """Runs simulations: keeps the state of every node, measures, and grows the tree.

    Args:
        game: steps and measurements.
        root: the state to begin with.
        guide: gives priors, and what is still to be gained.
        rollouts: `random`, `policy` (drawn from the guide's priors) or `none`.
        depth: actions per rollout.
        rng: draws.
        uniform: the guide of random rollouts.
    """

    def __init__(
        self, game: Game[S], root: S, guide: Guide[S], rollouts: str, depth: int, rng: np.random.Generator,
        uniform: Guide[S],
    ) -> None:  # fmt: skip
        self._game, self._root, self._guide, self._rng = game, root, guide, rng
        self._rollouts, self._depth = rollouts, depth
        self._drawn_by = guide if rollouts == "policy" else uniform
        self._states: dict[str, S] = {root.key: root}
        self._failed: set[str] = set()

    def run(self, descend: Callable[..., Selection]) -> Tree:
        """Simulate until the budget is spent, all states were seen, or nothing new is found any more."""
        game, latency = self._game, self._game.measure(self._root)
        tree = mcts.plant(key=self._root.key, node=self._node(self._root, latency.speedup))
        fruitless = 0
        while game.can_measure and game.can_step and fruitless < FRUITLESS:
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
        state = self._game.step(self._states[key], action)
        if state is None or state.key in self._failed:
            return mcts.discard(tree=tree, parent=key, action=action)
        known = tree.nodes.get(state.key)
        if known is not None:
            tree = mcts.expand(tree=tree, parent=key, action=action, key=state.key, node=known)
            return mcts.backup(tree=tree, path=(*path, (key, action)), value=known.known_value)
        latency = self._game.measure(state)
        if not latency.ok:  # it has no value: one of 0 would be the end of the scale, where all others look alike
            self._failed.add(state.key)
            return mcts.discard(tree=tree, parent=key, action=action)
        state = state.measured(latency)
        node = self._node(state, latency.speedup)
        tree = mcts.expand(tree=tree, parent=key, action=action, key=state.key, node=node)
        self._states[state.key] = state
        value = max(node.value, self._beyond(state, latency.speedup))
        return mcts.backup(tree=tree, path=(*path, (key, action)), value=value)

    def _node(self, state: S, speedup: float) -> TreeNode:
        priors = {} if state.over else self._guide.priors(state, self._rng)
        return TreeNode(speedup, tuple(priors), priors)

    def _beyond(self, state: S, speedup: float) -> float:
        """Return the speed-up to be had from a new state: measured by a rollout, or expected by the guide."""
        if self._rollouts == "none":
            left = 1.0 / speedup - self._guide.gain(state, speedup)
            # No guide is trusted to find more than twice what is there.
            return 1.0 / max(left, 0.5 / speedup)
        end = self._roll_out(state)
        if end is None or not self._game.can_measure:
            return 0.0
        return self._game.measure(end).speedup

    def _roll_out(self, state: S) -> S | None:
        """Return the state after up to `depth` further actions; None where there are none."""
        end = state
        for _ in range(self._depth):
            if end.over or not self._game.can_step:
                break
            priors = self._drawn_by.priors(end, self._rng)
            if not priors:
                break
            weights = np.fromiter(priors.values(), np.float64)
            action = int(self._rng.choice(np.fromiter(priors, np.intp), p=weights / weights.sum()))
            after = self._game.step(end, action)
            if after is None:
                break
            end = after
        return None if end is state else end
