"""The environment `rewritegym/WindowTable-v0`: windows whose steps were all timed before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy, deepcopy
from pathlib import Path
from typing import Any, Self, SupportsFloat

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from envs.checks import check_state, checked_action, restore_random
from envs.feature_sets import observation_space
from envs.observation import Observation
from envs.reward import ILLEGAL_ACTION_REWARD
from envs.window.env import HORIZON, WindowReward
from envs.window.shown_states import ShownStates
from envs.window.table import FEATURES, SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.task.replay import ReplayError

FORMAT = 1
Info = dict[str, Any]


class WindowTableEnv(gymnasium.Env[Observation, int]):
    """Rewrite windows whose steps were timed before: deterministic, without rules, models or a runtime.

    **Observation**: that of `WindowRewrite-v0`, padded to the largest state of the table.

    **Action**: `Discrete(C + 1)`: action k takes the k-th step that was timed in this state, the last one stops.
    `action_masks()` says which are legal; an illegal one costs 1 and ends the episode.

    **Reward**: the measured share of the window's time that the step saves, negative where it loses (at most twice the
    window's time); -1 where the window could not be run after it. The return is the share that the chain saves. A state
    without a timing of its own, within a chain that was timed as a whole, is passed through: the step to it is worth 0,
    and what was saved falls due at the next state with one. Who stops there gets what was saved before.

    **End**: terminated by the stop, an illegal action, a window that could not be run, or where no further step was
    timed; truncated after `horizon` steps.

    **Info**: `window` (its number), `model`, `family`, `step`, `rule` (of the last step), `share` and `best_share`
    (saved by the chain, and by the best beginning of it), `optimum` (the largest share that any chain of the window
    saves, 0 for none), `measured` (the state has a timing of its own), `candidates`, `illegal_action`, `failure`.

    Args:
        table: a table of windows, or the file of one; by default the one that ships.
        horizon: steps after which an episode is truncated.
        families: take windows of these architectures only; by default all.
        without: leave out windows of these architectures.
        least_chains: take windows in which at least so many chains were timed: with one, there is little to choose.
        exhaustive: take only windows in which every step was timed that the first steps made possible.
        render_mode: there is nothing to render.

    Raises:
        UserError: no such file, no table, an unknown family, or no window is left.

    Example:
        >>> env = WindowTableEnv(without=["resnet"])
        >>> observation, info = env.reset(seed=0)
        >>> done = False
        >>> while not done:
        ...     action = env.np_random.choice(np.flatnonzero(env.action_masks()))
        ...     observation, reward, terminated, truncated, info = env.step(action)
        ...     done = terminated or truncated
        >>> info["share"], info["optimum"]  # doctest: +SKIP
    """

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012
    observation_space: spaces.Dict  # type: ignore[assignment]
    action_space: spaces.Discrete  # type: ignore[assignment]

    def __init__(
        self,
        table: WindowTable | str | Path | None = None,
        *,
        horizon: int = HORIZON,
        families: Sequence[str] | None = None,
        without: Sequence[str] = (),
        least_chains: int = 2,
        exhaustive: bool = False,
        render_mode: None = None,
    ) -> None:
        if horizon < 1:
            raise UserError(f"horizon must be at least 1, got {horizon}")
        self.table = table if isinstance(table, WindowTable) else WindowTable.load(Path(table or SHIPPED))
        self.horizon, self.render_mode = horizon, render_mode
        self.windows = _chosen(self.table, families, without, least_chains, exhaustive)
        """Numbers of the windows that `reset` draws from."""
        self._shown, self._best = ShownStates(self.table, horizon), self.table.best_shares()
        self._measured = self.table.measured_states()
        self._reward = WindowReward()
        self.observation_space = observation_space(self.table.limits, FEATURES)
        self.action_space = spaces.Discrete(self.table.limits.max_candidates + 1)
        self._states: tuple[int, ...] = ()
        self._actions: tuple[int, ...] = ()
        self._over, self._end = False, ""

    @property
    def no_op(self) -> int:
        """The action that stops: the last one."""
        return self.table.limits.max_candidates

    @property
    def state_number(self) -> int:
        """Number of the current state in the table."""
        if not self._states:
            raise gymnasium.error.ResetNeeded("the environment has no state yet: call reset() first")
        return self._states[-1]

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [C + 1]: which actions are legal."""
        return self._shown.mask(self.state_number)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Observation, Info]:
        """Start an episode. `options={"window": number}` chooses a window instead of drawing it.

        Raises:
            UserError: unknown options, or a window that this environment does not take.
        """
        super().reset(seed=seed)
        chosen = dict(options or {})
        window = chosen.pop("window", None)
        if chosen:
            raise UserError(f"unknown reset options {sorted(chosen)}; there is 'window'")
        if window is None:
            window = self.windows[int(self.np_random.integers(len(self.windows)))]
        elif window not in self.windows:
            raise UserError(f"this environment takes no window {window!r}; env.windows has their numbers")
        return self._begin(int(window))

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, Info]:
        """Take a step, or stop.

        Raises:
            gymnasium.error.ResetNeeded: the episode is over.
            UserError: the action is no whole number.
        """
        state, number = self.state_number, checked_action(action, self.no_op)
        if self._over:
            raise gymnasium.error.ResetNeeded("the episode is over: call reset() before the next step")
        self._actions = (*self._actions, number)
        reward = self._take(state, number)
        terminated = bool(self._end) or not self._shown.count(self.state_number)
        truncated = len(self._actions) >= self.horizon and not terminated
        self._over = terminated or truncated
        return self._observe(), reward, terminated, truncated, self._info()

    def fork(self) -> Self:
        """An independent environment in the same state, random generator included; shares the table."""
        twin = copy(self)
        twin._np_random = deepcopy(self._np_random)
        return twin

    def state(self) -> dict[str, Any]:
        """The episode as JSON-serialisable values."""
        window = int(self.table.arrays["state_window"][self.state_number])
        return {
            "format": FORMAT, "window": window, "fingerprint": self.table.windows[window].fingerprint,
            "actions": list(self._actions), "random": self.np_random.bit_generator.state,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> tuple[Observation, Info]:
        """Go to a recorded state by taking its actions again. Returns what `reset` returns.

        Raises:
            ReplayError: recorded with another table, or no recorded state.
        """
        check_state(state, ("format", "window", "fingerprint", "actions", "random"))
        window = state["window"]
        known = state["format"] == FORMAT and window in self.windows
        if not known or self.table.windows[window].fingerprint != state["fingerprint"]:
            raise ReplayError("the state was recorded with another table, or with other windows of it")
        observation, info = self._begin(window)
        for action in state["actions"]:
            if self._over:
                raise ReplayError("the recorded actions go on after the end of the episode")
            observation, _, _, _, info = self.step(action)
        restore_random(self.np_random, state["random"])
        return observation, info

    def _begin(self, window: int) -> tuple[Observation, Info]:
        self._states, self._actions = (int(self.table.arrays["window_root"][window]),), ()
        self._over, self._end = False, ""
        return self._observe(), self._info()

    def _take(self, state: int, action: int) -> float:
        """Go on from a state; return the reward."""
        if action == self.no_op:
            self._end = "no-op"
            return 0.0
        if not 0 <= action < self._shown.count(state):
            self._end = "illegal"
            return ILLEGAL_ACTION_REWARD
        arrays = self.table.arrays
        step = int(arrays["step_start"][state]) + action
        self._states = (*self._states, int(arrays["step_next"][step]))
        if arrays["step_failed"][step]:
            self._end = "failed"
            return self._reward.failure
        before, after = float(arrays["state_share"][state]), float(arrays["step_share"][step])
        return self._reward.cut(after) - self._reward.cut(before)

    def _observe(self) -> Observation:
        return self._shown.observation(self._states, len(self._actions))

    def _info(self) -> Info:
        arrays, state = self.table.arrays, self.state_number
        number = int(arrays["state_window"][state])
        window, shares = self.table.windows[number], arrays["state_share"][list(self._states)]
        taken = self._actions and self._end not in ("no-op", "illegal")
        return {
            "window": number, "model": window.model, "family": window.family, "step": len(self._actions),
            "rule": self._shown.rule(self._states[-2], self._actions[-1]) if taken else "",
            "share": float(shares[-1]), "best_share": float(shares.max()),
            "optimum": float(self._best[self._states[0]]), "measured": bool(self._measured[state]),
            "candidates": self._shown.count(state),
            "illegal_action": self._end == "illegal", "failure": "error" if self._end == "failed" else "",
        }  # fmt: skip


def _chosen(
    table: WindowTable, families: Sequence[str] | None, without: Sequence[str], least_chains: int, exhaustive: bool
) -> tuple[int, ...]:
    known = {window.family for window in table.windows}
    unknown = {*(families or ()), *without} - known
    if unknown:
        raise UserError(f"no window of the table is of {sorted(unknown)}; its families are {sorted(known)}")
    wanted = known if families is None else set(families)
    wanted -= set(without)
    found = tuple(
        number for number, window in enumerate(table.windows)
        if window.family in wanted and window.chains >= least_chains and (window.exhaustive or not exhaustive)
    )  # fmt: skip
    if not found:
        raise UserError("no window of the table is left: choose other families, least_chains=1 or exhaustive=False")
    return found
