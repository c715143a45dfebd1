"""Decisions that a table of windows teaches: in each state, what every action leads to at best."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agents.effects.believed import believed_shares
from agents.effects.samples import StateSample, samples_of, state_of
from agents.ppo.batches import trimmed
from agents.universal.observations import unmeasured
from envs.window.env import HORIZON
from envs.window.table import WindowTable

FAILURE = -1.0
"""Gain of a step after which the window cannot be run: the environment's reward for it."""


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
    value = table.best_shares(believed)
    found = []
    for sample in samples_of(table, windows):
        part = slice(sample.first_step, sample.first_step + len(sample.effects))
        after, failed = table.arrays["step_next"][part], table.arrays["step_failed"][part]
        gains = np.where(failed, FAILURE, value[after] - believed[state_of(table, sample)])
        observation = trimmed(unmeasured(sample.observation, sample.depth, horizon))
        found.append(TableDecision(replace(sample, observation=observation), gains))
    return found
