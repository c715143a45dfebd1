"""A table of windows as arrays over numbers of states: many windows are played at once by indexing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from envs.window.env import HORIZON, WindowReward
from envs.window.table import WindowTable

IntArray = NDArray[np.int64]
Floats = NDArray[np.float64]
Actor = Callable[[IntArray], IntArray]
"""Chooses an action in each of some states, [B] to [B]."""


class WindowGame:
    """The transitions and rewards of `WindowTableEnv`, of all states of a table.

    A state is reached by one path only, since the states of a window are a tree. So a state's number says all that the
    environment's episode has been so far, and an episode is a sequence of numbers.

    Args:
        table: the table; S states, W windows, and A actions, the last of which stops.
        horizon: steps of an episode.

    Attributes:
        masks: bool [S, A], the legal actions.
        after: int64 [S, A], the state that an action leads to; that of the stop, and of an illegal action, is the same
            state.
        rewards: float64 [S, A], those of `WindowTableEnv`; 0 for illegal actions, which nobody is to take.
        over: bool [S, A], True where an action ends the episode.
        returns: float64 [S, A], the largest return of what begins with an action; minus infinity for illegal ones.
        roots: int64 [W], the first state of each window.
        windows: int64 [S], the window of each state.
    """

    def __init__(self, table: WindowTable, horizon: int = HORIZON) -> None:
        arrays, self.table, self.horizon = table.arrays, table, horizon
        self.actions = table.limits.max_candidates + 1
        self.roots: IntArray = arrays["window_root"].astype(np.int64)
        self.windows: IntArray = arrays["state_window"].astype(np.int64)
        counts = np.diff(arrays["step_start"])
        shape = table.states, self.actions
        state = table.step_states()
        action = np.arange(table.steps) - np.repeat(arrays["step_start"][:-1], counts)
        self.masks = np.zeros(shape, dtype=np.bool_)
        self.masks[state, action] = self.masks[:, -1] = True
        self.after: IntArray = np.repeat(np.arange(table.states)[:, None], self.actions, axis=1)
        self.after[state, action] = arrays["step_next"]
        failed = arrays["step_failed"]
        last = arrays["state_depth"][state] + 1 >= horizon
        self.over = np.ones(shape, dtype=np.bool_)
        self.over[state, action] = failed | last | (counts[arrays["step_next"]] == 0)
        reward, shares = WindowReward(), arrays["state_share"].astype(np.float64)
        saved = np.maximum(arrays["step_share"], reward.least) - np.maximum(shares[state], reward.least)
        self.rewards: Floats = np.zeros(shape)
        self.rewards[state, action] = np.where(failed, reward.failure, saved)
        self.returns = self._returns()

    @property
    def stop(self) -> int:
        """The action that stops."""
        return self.actions - 1

    @property
    def optimum(self) -> Floats:
        """float64 [W]: the largest return of each window, 0 where nothing saves time."""
        best: Floats = self.returns[self.roots].max(axis=1)
        return best

    def best_actions(self, states: IntArray) -> IntArray:
        """Return the actions that lead to the largest returns; the stop where nothing more is gained."""
        returns = self.returns[states]
        best: IntArray = np.where(returns.max(axis=1) <= 0.0, self.stop, returns.argmax(axis=1))
        return best

    def play(self, act: Actor, windows: IntArray) -> Floats:
        """Return the return of one episode in each of some windows."""
        states, found = self.roots[windows], np.zeros(len(windows))
        running = np.arange(len(windows))
        while len(running):
            actions = act(states[running])
            here = states[running]
            found[running] += self.rewards[here, actions]
            states[running] = self.after[here, actions]
            running = running[~self.over[here, actions]]
        return found

    def _returns(self) -> Floats:
        """Return the largest returns, from the last states to the first: steps lead to states with larger numbers."""
        returns = np.where(self.masks, self.rewards, -np.inf)
        for state in range(len(returns) - 1, -1, -1):
            for action in np.flatnonzero(self.masks[state] & ~self.over[state]):
                returns[state, action] += returns[self.after[state, action]].max()
        return returns
