"""Decisions that a table of windows teaches: in each state, what every action leads to at best."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agents.effects.samples import Z95, StateSample, samples_of, state_of
from agents.ppo.batches import trimmed
from agents.universal.observations import unmeasured
from envs.window.env import HORIZON, LEAST_SHARE
from envs.window.table import WindowTable

FAILURE = -1.0
"""Gain of a step after which the window cannot be run: the environment's reward for it."""
SPREAD = 0.15
"""Standard deviation of what chains save, as shares of their windows' time: measurements count by how much more precise
than that they are."""


@dataclass(frozen=True, slots=True)
class TableDecision:
    """A state with steps, and what each action gains."""

    sample: StateSample
    """The state as the policy sees it, with the effects of its steps."""
    gains: NDArray[np.float64]
    """[steps], the share of the window's time that the best chain through each step saves beyond what the chain before
    it saves; to stop gains 0."""

    def target(self, temperature: float, least_saved: float) -> NDArray[np.float64]:
        """Return the probabilities [steps + 1] to be imitated, that of the stop last.

        Args:
            temperature: difference in gain below which actions are about alike; 0 for the best action alone.
            least_saved: gain from which on a step is better than to stop.
        """
        worth = np.append(self.gains - least_saved, 0.0)
        if temperature <= 0.0:
            # Of equal ones the stop: the last of the largest.
            best = len(worth) - 1 - int(worth[::-1].argmax())
            odds = (np.arange(len(worth)) == best).astype(np.float64)
        else:
            odds = np.exp((worth - worth.max()) / temperature)
        found: NDArray[np.float64] = odds / odds.sum()
        return found


def decisions_of(table: WindowTable, windows: Collection[int], horizon: int = HORIZON) -> list[TableDecision]:
    """Return the decisions in the windows with these numbers.

    What was measured is drawn towards 0, the more the less precise it is: the best of several noisy measurements owes
    part of its lead to luck.
    """
    believed = believed_shares(table)
    value = _values(table, believed)
    found = []
    for sample in samples_of(table, windows):
        part = slice(sample.first_step, sample.first_step + len(sample.effects))
        after, failed = table.arrays["step_next"][part], table.arrays["step_failed"][part]
        gains = np.where(failed, FAILURE, value[after] - believed[state_of(table, sample)])
        observation = trimmed(unmeasured(sample.observation, sample.depth, horizon))
        found.append(TableDecision(replace(sample, observation=observation), gains))
    return found


def believed_shares(table: WindowTable) -> NDArray[np.float64]:
    """Return the share of the window's time that the chain of each state saves, drawn towards 0 by how imprecise its
    measurement is. A state without a timing of its own counts as the one before it."""
    arrays = table.arrays
    believed = np.zeros(table.states)
    deviation = arrays["step_half"].astype(np.float64) / Z95
    measured = np.maximum(arrays["step_share"].astype(np.float64), LEAST_SHARE)
    ok = arrays["step_measured"] & ~arrays["step_failed"]
    believed[arrays["step_next"][ok]] = (measured / (1.0 + (deviation / SPREAD) ** 2))[ok]
    parents = table.parents()
    for state in np.flatnonzero(~table.measured_states()):  # states follow those that lead to them
        believed[state] = believed[parents[state]]
    return believed


def _values(table: WindowTable, believed: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the largest share that is believed of each state or of any that lies behind it."""
    value, arrays = believed.copy(), table.arrays
    for state in range(table.states - 1, -1, -1):  # steps lead to states with larger numbers
        part = slice(arrays["step_start"][state], arrays["step_start"][state + 1])
        ok = ~arrays["step_failed"][part]
        if ok.any():
            value[state] = max(value[state], value[arrays["step_next"][part][ok]].max())
    return value
