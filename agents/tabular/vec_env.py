"""Many windows of a table side by side, as Stable-Baselines3 takes them: an observation is the number of a state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from stable_baselines3.common.vec_env.base_vec_env import VecEnv, VecEnvIndices, VecEnvObs, VecEnvStepReturn

from agents.tabular.cloning import Decisions
from agents.tabular.game import Floats, IntArray, WindowGame
from agents.tabular.policy import state_spaces

Reward = Literal["step", "end", "model"]
"""`step`: the share of the window's time that a step saves; `end`: all of it with the last step; `model`: the share of
the whole model's time that a step saves."""
LEAST_TRIES = 8
"""Episodes of a window without a gain after which to stop at once is worth imitating."""


class WindowVecEnv(VecEnv):
    """Plays windows drawn from a list, and remembers the best episode of each.

    Args:
        game: the table.
        windows: windows to draw from.
        count: environments side by side, E.
        random: draws windows and restarts.
        reward: the reward of a step.
        restarts: share of the episodes that begin at a state on the best path of their window instead of its root.
    """

    def __init__(
        self, game: WindowGame, windows: IntArray, count: int, random: np.random.Generator, reward: Reward = "step",
        restarts: float = 0.0,
    ) -> None:  # fmt: skip
        self.render_mode = None
        super().__init__(count, *state_spaces(game))
        self.game, self._list, self._random = game, windows, random
        self._reward, self._restarts = reward, restarts
        weights = np.array([window.weight for window in game.table.windows])
        self._scale: Floats = weights if reward == "model" else np.ones(len(weights))
        self._infos: list[dict[str, Any]] = [{} for _ in range(count)]
        self.states = np.zeros(count, dtype=np.int64)
        self._actions = np.zeros(count, dtype=np.int64)
        self._saved = np.zeros(count)
        self._paths: list[list[tuple[int, int]]] = [[] for _ in range(count)]
        self._tries = np.zeros(len(game.roots), dtype=np.int64)
        self._best: Floats = np.full(len(game.roots), -np.inf)
        self._best_paths: dict[int, list[tuple[int, int]]] = {}
        self._taken: list[Decisions] = []

    def reset(self) -> VecEnvObs:
        """Begin an episode in every environment."""
        self._begin(np.arange(self.num_envs))
        return self._observed()

    def step_async(self, actions: NDArray[Any]) -> None:
        """Note the actions, int64 [E]."""
        self._actions = np.asarray(actions, dtype=np.int64)

    def step_wait(self) -> VecEnvStepReturn:
        """Take the actions; where an episode ends, another begins."""
        game, states, actions = self.game, self.states, self._actions
        rewards, over = game.rewards[states, actions], game.over[states, actions]
        for path, state, action in zip(self._paths, states.tolist(), actions.tolist(), strict=True):
            path.append((state, action))
        self._taken.append(Decisions(states, actions))
        self._saved += rewards
        shown = np.where(over, self._saved, 0.0) if self._reward == "end" else rewards
        shown = shown * self._scale[game.windows[states]]
        self.states = game.after[states, actions]
        ended = np.flatnonzero(over)
        for number in ended.tolist():
            self._remember(number)
        self._begin(ended)
        return self._observed(), shown.astype(np.float32), over, self._infos

    def lesson(self) -> Decisions:
        """Return the decisions of the best episodes so far, of the windows in which one gained, or many did not."""
        gained = (self._best > 0.0) | ((self._best == 0.0) & (self._tries >= LEAST_TRIES))
        steps = [step for window in np.flatnonzero(gained).tolist() for step in self._best_paths[window]]
        states, actions = np.array(steps, dtype=np.int64).reshape(-1, 2).T
        return Decisions(states, actions)

    def taken(self) -> Decisions:
        """Return the steps since the last call, those that stop left out."""
        states, actions = (np.concatenate([np.zeros(0, np.int64), *column]) for column in _columns(self._taken))
        self._taken.clear()
        steps = actions != self.game.stop
        return Decisions(states[steps], actions[steps])

    def action_masks(self) -> list[NDArray[np.bool_]]:
        """Return the legal actions of each environment, bool [A]."""
        return list(self.game.masks[self.states])

    def env_method(
        self, method_name: str, *method_args: Any, indices: VecEnvIndices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Call a method of each environment; there is `action_masks`."""
        if method_name != "action_masks":
            raise AttributeError(method_name)
        return self.action_masks()

    def get_attr(self, attr_name: str, indices: VecEnvIndices = None) -> list[Any]:
        """Return an attribute, which all environments share."""
        return [getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: VecEnvIndices = None) -> None:
        """Refuse to set anything."""
        raise AttributeError(attr_name)

    def env_is_wrapped(self, wrapper_class: type, indices: VecEnvIndices = None) -> list[bool]:
        """Return that no environment is wrapped."""
        return [False] * self.num_envs

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def _begin(self, which: IntArray) -> None:
        windows = self._random.choice(self._list, size=len(which))
        restarted = self._random.random(len(which)) < self._restarts
        for number, window, again in zip(which.tolist(), windows.tolist(), restarted.tolist(), strict=True):
            begun = self._start(window) if again else []
            self._paths[number] = begun
            self.states[number] = self.game.after[begun[-1]] if begun else self.game.roots[window]
            self._saved[number] = sum(self.game.rewards[step] for step in begun)

    def _start(self, window: int) -> list[tuple[int, int]]:
        """Return a beginning of the best path of a window, without its last step; empty where there is none."""
        path: Sequence[tuple[int, int]] = self._best_paths.get(window, ())
        return list(path[: int(self._random.integers(len(path)))]) if path else []

    def _remember(self, number: int) -> None:
        """Keep the path of an episode that has ended, if it is the best of its window; of equal ones the shortest."""
        path, saved = self._paths[number], float(self._saved[number])
        window = int(self.game.windows[path[0][0]])
        self._tries[window] += 1
        known = self._best_paths.get(window)
        if known is None or (saved, -len(path)) > (self._best[window], -len(known)):
            self._best[window], self._best_paths[window] = saved, path

    def _observed(self) -> NDArray[np.float32]:
        return self.states[:, None].astype(np.float32)


def _columns(taken: Sequence[Decisions]) -> tuple[list[IntArray], list[IntArray]]:
    return [one.states for one in taken], [one.actions for one in taken]
