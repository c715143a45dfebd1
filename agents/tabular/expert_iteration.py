"""Expert iteration: a tree search in the table, guided by the policy, whose best chains the policy then imitates
(Anthony, Tian and Barber, "Thinking Fast and Slow with Deep Learning and Tree Search", NeurIPS 2017)."""

from __future__ import annotations

import numpy as np

from agents.tabular.cloning import BATCH, Decisions, drawn, imitate
from agents.tabular.game import Floats, IntArray, WindowGame
from agents.tabular.policy import StatePolicy
from agents.tabular.run import LearningRun

WINDOWS = 64
"""Windows that are searched between two imitations."""
SIMULATIONS = 8
"""Chains that a search tries in each of them."""
EXPLORATION = 0.5
"""Weight of what was tried little, in shares of a window's time."""
UPDATES = 4
"""Gradient steps after a search."""


class ChainSearch:
    """A tree search over states, of many windows at once: PUCT (Silver et al. 2017, Nature 550, 354-359), whose values
    are the largest returns found instead of means, since windows are deterministic. What was found is kept, and no
    chain is tried twice.

    Args:
        game: the table.
        policy: its probabilities guide the search.
    """

    def __init__(self, game: WindowGame, policy: StatePolicy) -> None:
        self._game, self._policy = game, policy
        self._visits: IntArray = np.zeros(game.masks.shape, dtype=np.int64)
        self._best: Floats = np.full(game.masks.shape, -np.inf)
        self._best[:, game.stop] = 0.0
        self._tried = ~game.masks
        """Actions behind which there is nothing left to try; to stop needs no try."""
        self._tried[:, game.stop] = True
        self._likely: Floats = np.zeros(game.masks.shape)

    def search(self, windows: IntArray, simulations: int) -> int:
        """Try chains in some windows, each of them once in the list; return the steps of the environment taken, 0 where
        all chains were tried."""
        states = np.flatnonzero(np.isin(self._game.windows, windows))
        self._likely[states] = self._policy.probabilities(states)
        return sum(self._simulate(windows) for _ in range(simulations))

    def decisions(self, windows: IntArray) -> Decisions:
        """Return the decisions along the best chain that was found in each of some windows."""
        game, states, actions, here = self._game, list[IntArray](), list[IntArray](), self._game.roots[windows]
        while len(here):
            best = self._best[here]
            chosen: IntArray = np.where(best.max(axis=1) <= 0.0, game.stop, best.argmax(axis=1))
            states.append(here)
            actions.append(chosen)
            here = game.after[here, chosen][~game.over[here, chosen]]
        return Decisions(np.concatenate(states), np.concatenate(actions))

    def _simulate(self, windows: IntArray) -> int:
        """Try one chain in each window that has one left."""
        game, here = self._game, self._game.roots[windows]
        here = here[~self._tried[here].all(axis=1)]
        path = list[tuple[IntArray, IntArray]]()
        while len(here):
            actions = self._chosen(here)
            path.append((here, actions))
            here = game.after[here, actions][~game.over[here, actions]]
        for states, actions in reversed(path):
            over, after = game.over[states, actions], game.after[states, actions]
            follows = np.where(over, 0.0, self._best[after].max(axis=1))
            self._best[states, actions] = game.rewards[states, actions] + follows
            self._tried[states, actions] = over | self._tried[after].all(axis=1)
            self._visits[states, actions] += 1
        return sum(len(states) for states, _ in path)

    def _chosen(self, states: IntArray) -> IntArray:
        """Return the action in each state that promises most, of those with something left to try: the best return
        found, or 0 where it was never taken, and more the likelier and the less visited it is."""
        visits = self._visits[states]
        known = np.where(visits > 0, self._best[states], 0.0)
        share = np.sqrt(1.0 + visits.sum(axis=1, keepdims=True)) / (1.0 + visits)
        promise = known + EXPLORATION * self._likely[states] * share
        chosen: IntArray = np.where(self._tried[states], -np.inf, promise).argmax(axis=1)
        return chosen


def expert_iteration(run: LearningRun) -> None:
    """Search some windows, imitate the best chains found in all windows so far, and so on. The steps of a search count;
    once all chains of its windows were tried, the decisions that are imitated do."""
    search = ChainSearch(run.game, run.policy)
    seen = np.zeros(len(run.game.roots), dtype=np.bool_)
    while run.left:
        windows = np.unique(run.draw_windows(WINDOWS))
        seen[windows] = True
        steps = search.search(windows, SIMULATIONS)
        decisions, imitated = search.decisions(np.flatnonzero(seen)), 0
        for _ in range(UPDATES):
            batch = drawn(decisions, BATCH, run.random)
            imitate(run.policy, batch)
            imitated += len(batch.states)
        run.took(steps or imitated)
