"""Scores of policies on a table of windows: the share of a window's time that their chains save."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from agents.effects.samples import StateSample, samples_of, state_of
from agents.effects.stored import BEST, OWN, ChainPredictor
from agents.universal.observations import unmeasured
from agents.universal.policy import WindowPolicy
from agents.universal.prior import opinions
from envs.window.env import HORIZON
from envs.window.table import WindowTable

STOP = -1
"""In place of the number of a step: to stop."""
_STATES = 64
"""States that are looked at together."""

Choices = NDArray[np.intp]
"""[states of a table], the number of the step that is taken in each, or `STOP`."""


def saved_shares(table: WindowTable, windows: Sequence[int], choices: Choices) -> NDArray[np.float64]:
    """Return the share of each window's time that is saved by following choices from its root; 0 where that ends with a
    step after which the window cannot be run."""
    arrays, found = table.arrays, []
    for window in windows:
        state = int(arrays["window_root"][window])
        while choices[state] != STOP:
            step = int(arrays["step_start"][state] + choices[state])
            state = int(arrays["step_next"][step])
            if arrays["step_failed"][step]:
                break
        found.append(float(arrays["state_share"][state]))
    return np.array(found)


def random_shares(table: WindowTable, windows: Sequence[int]) -> NDArray[np.float64]:
    """Return the share that is saved in the mean where every action, the stop among them, is as likely as any other."""
    arrays = table.arrays
    mean = arrays["state_share"].astype(np.float64)
    for state in range(table.states - 1, -1, -1):  # steps lead to states with larger numbers
        part = slice(arrays["step_start"][state], arrays["step_start"][state + 1])
        after = arrays["step_next"][part]
        if len(after):
            mean[state] = (mean[state] + mean[after].sum()) / (len(after) + 1)
    found: NDArray[np.float64] = mean[arrays["window_root"][list(windows)]]
    return found


def best_shares(table: WindowTable, windows: Sequence[int]) -> NDArray[np.float64]:
    """Return the largest share that any chain saves, measured as it was: nothing that does not know the measurements
    can reach it."""
    found: NDArray[np.float64] = table.best_shares()[table.arrays["window_root"][list(windows)]]
    return found


def policy_choices(
    policy: WindowPolicy, table: WindowTable, windows: Collection[int], horizon: int = HORIZON
) -> Choices:
    """Return the likeliest action in each state of some windows."""
    choices, states = _nothing(table), _numbered(table, samples_of(table, windows))
    for begin in range(0, len(states), _STATES):
        part = states[begin : begin + _STATES]
        seen = [unmeasured(sample.observation, sample.depth, horizon) for _, sample in part]
        for (number, _), opinion in zip(part, opinions(policy, seen), strict=True):
            choice = opinion.choice
            choices[number] = STOP if choice is None else choice
    return choices


def effect_choices(model: ChainPredictor, table: WindowTable, samples: Sequence[StateSample]) -> Choices:
    """Return, in each state of a table, the step that a model of effects predicts to lead to most; to stop where that
    is a loss, or where no part of the chain that begins with it is predicted to save anything by itself.

    Args:
        samples: the states of all depths of some windows; in all others the choice is to stop.
    """
    choices, ahead = _nothing(table), np.zeros(table.states)
    states = _numbered(table, samples)
    predicted: dict[int, tuple[int, float]] = {}
    for begin in range(0, len(states), _STATES):
        part, first = states[begin : begin + _STATES], 0
        means, _ = model.predict_both([sample for _, sample in part])
        for number, sample in part:
            mine, first = means[first : first + len(sample.effects)], first + len(sample.effects)
            best = int(mine[:, BEST].argmax())
            if mine[best, BEST] > 0.0:
                predicted[number] = best, float(mine[best, OWN])
    for number in sorted(predicted, reverse=True):  # steps lead to states with larger numbers
        best, own = predicted[number]
        after = table.arrays["step_next"][table.arrays["step_start"][number] + best]
        if own + ahead[after] > 0.0:
            choices[number], ahead[number] = best, own + ahead[after]
    return choices


def _nothing(table: WindowTable) -> Choices:
    return np.full(table.states, STOP, dtype=np.intp)


def _numbered(table: WindowTable, samples: Iterable[StateSample]) -> list[tuple[int, StateSample]]:
    """Return states of a table with their numbers."""
    return [(state_of(table, sample), sample) for sample in samples]
