"""Samples of effects: the states of a table of windows, with what each of their steps saved."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from agents.effects.believed import believed_shares
from agents.effects.plain import PlainSteps, plain_steps
from agents.effects.step_means import MOST_GUESS, MOST_LOST, Z95
from envs.observation import Observation
from envs.window.env import LEAST_SHARE
from envs.window.shown_states import ShownStates
from envs.window.table import WindowTable

MOST_SHARE = 0.95
"""Share of a window's time above which a saving counts as this."""


@dataclass(frozen=True)
class StateSample:
    """A state of a window, and the effects of its steps."""

    window: int
    first_step: int
    """Number of its first step in the table; the others follow."""
    observation: Observation
    share: float
    """Share of the window's time that the steps before save."""
    depth: int
    effects: NDArray[np.float64]
    """Of each step, log of the time before it over the time after it: above 0 it saves; NaN where it could not be run,
    and where one of the two was not timed."""
    errors: NDArray[np.float64]
    """Standard deviations of measuring `effects`."""
    best: NDArray[np.float64]
    """Of each step, the effect of the best chain that begins with it, of those that were timed; a large loss where the
    step could not be run. NaN where one of the two states was not timed."""
    guesses: NDArray[np.float64]
    """Of each step, the share of the window's time that it saves by a count of operations and bytes, large ones cut
    off."""

    @cached_property
    def plain(self) -> PlainSteps:
        """The plain features of its steps."""
        return plain_steps(self.observation, self.depth, self.guesses)


def effect(before: NDArray[np.float64] | float, after: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the log of the time before a step over the time after it, by the shares that are saved."""
    return np.asarray(np.log(_left(before)) - np.log(_left(after)))


def share_after(before: NDArray[np.float64] | float, effects: NDArray[np.float64] | float) -> NDArray[np.float64]:
    """Return the share that is saved after a step of this effect; the inverse of `effect`."""
    return np.asarray(1.0 - _left(before) * np.exp(-np.asarray(effects)))


def _left(share: NDArray[np.float64] | float) -> NDArray[np.float64]:
    return 1.0 - np.clip(share, LEAST_SHARE, MOST_SHARE)


def state_of(table: WindowTable, sample: StateSample) -> int:
    """Return the number of a sample's state in its table."""
    return int(np.searchsorted(table.arrays["step_start"], sample.first_step, side="right")) - 1


def samples_of(table: WindowTable, windows: Collection[int] | None = None) -> Iterator[StateSample]:
    """Yield the states of a table that have steps, those of the windows with these numbers; by default of all."""
    shown, arrays, timed = ShownStates(table, 1), table.arrays, table.measured_states()
    chosen = None if windows is None else set(windows)
    best, guesses = _best_effects(table), np.clip(arrays["step_guess"], -MOST_GUESS, MOST_GUESS).astype(np.float64)
    for state in range(table.states):
        first, end = (int(arrays["step_start"][number]) for number in (state, state + 1))
        if first == end or (chosen is not None and int(arrays["state_window"][state]) not in chosen):
            continue
        share, after = float(arrays["state_share"][state]), arrays["step_share"][first:end].astype(np.float64)
        known = arrays["step_measured"][first:end] & ~arrays["step_failed"][first:end] & timed[state]
        effects = np.where(known, effect(share, after), np.nan)
        errors = arrays["step_half"][first:end] / Z95 / _left(after)
        yield StateSample(
            int(arrays["state_window"][state]), first, shown.observation((state,), 0), share,
            int(arrays["state_depth"][state]), effects, errors, best[first:end], guesses[first:end],
        )  # fmt: skip


def _best_effects(table: WindowTable) -> NDArray[np.float64]:
    """Return the effect of the best chain that begins with each step; measurements count by how precise they are."""
    arrays, states, believed = table.arrays, table.step_states(), believed_shares(table)
    before, best = believed[states], table.best_shares(believed)[arrays["step_next"]]
    after = np.where(arrays["step_failed"], before - MOST_LOST, np.maximum(best, before - MOST_LOST))
    timed = arrays["step_measured"] & table.measured_states()[states]
    return np.where(timed, effect(before, after), np.nan)
