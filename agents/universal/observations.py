"""Observations without measurements: what the universal policy sees, on a table and at work alike."""

from __future__ import annotations

from typing import Any, SupportsFloat

import gymnasium
import numpy as np
from numpy.typing import NDArray

from envs.feature_sets import CANDIDATE_DETAILS, CONTEXT
from envs.observation import Observation, log_share
from envs.window import WindowTableEnv
from envs.window.env import HORIZON

_MEASURED = CANDIDATE_DETAILS.index("measured")
_STEPS_LEFT, _BUDGET_LEFT = CONTEXT.index("steps_left"), CONTEXT.index("budget_left")
_CORES, _ONE_CORE = CONTEXT.index("cores"), 1.0 / 8


def unmeasured(observation: Observation, depth: int, horizon: int = HORIZON) -> Observation:
    """Return an observation of a window that tells nothing of what was measured: neither speed-ups nor what rules saved
    before. Nor does it tell of cores: tables are timed on one, whatever the machine has.

    Args:
        observation: of the feature set `full`.
        depth: rewrites that led to the state.
        horizon: steps of an episode.
    """
    nodes, _, steps = (int(size) for size in observation["sizes"])
    taken = min(1.0, depth / horizon)
    details, context = observation["candidate_details"].copy(), observation["context"].copy()
    details[:, _MEASURED:] = 0.0
    context[_STEPS_LEFT], context[_BUDGET_LEFT], context[_CORES] = 1.0 - taken, 1.0, _ONE_CORE
    own = int((observation["node_candidate"][:nodes] == 0).sum())
    refused = float(context[_BUDGET_LEFT + 1 :].sum()) / 8
    values = (taken, 0.0, 1.0, 1.0, 0.0, log_share(steps), log_share(own), refused)
    seen = {"candidate_details": details, "context": context, "globals": np.array(values, dtype=np.float32)}
    return {**observation, **seen}


class UnmeasuredWindows(gymnasium.Wrapper[Observation, int, Observation, int]):
    """A table of windows whose observations tell nothing of what was measured; rewards do.

    Args:
        env: the environment.
    """

    def __init__(self, env: WindowTableEnv) -> None:
        super().__init__(env)
        self._windows = env

    def action_masks(self) -> NDArray[np.bool_]:
        """bool [C + 1]: which actions are legal."""
        return self._windows.action_masks()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        """Start an episode."""
        observation, info = self.env.reset(seed=seed, options=options)
        return unmeasured(observation, 0, self._windows.horizon), info

    def step(self, action: int) -> tuple[Observation, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step, or stop."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        return unmeasured(observation, int(info["step"]), self._windows.horizon), reward, terminated, truncated, info
