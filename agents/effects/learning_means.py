"""Means of what steps save, learnt from a table of windows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from agents.effects.believed import believed_shares
from agents.effects.samples import Z95
from agents.effects.step_means import MOST_GUESS, Forecast, MeansOnLine, StepMeans, step_keys
from envs.window.table import WindowTable

SPREAD = 0.05
"""Standard deviation of what alike steps save, as shares of their windows' time: a timing counts by how much more
precise than that it is."""
MOST_LOST = 0.5
"""Loss that larger ones, and failures, count as: what loses that much is never taken, and would decide every mean."""


@dataclass(frozen=True, slots=True)
class StatedSteps:
    """The steps of a table with what they gain, each array by their numbers."""

    gains: NDArray[np.float64]
    """Share of the window's time that each step saves beyond the chain before it, or that the best chain does which
    goes on from there: what a search finds that takes it. NaN where one of the two was not timed."""
    own: NDArray[np.float64]
    """Share that each saves beyond the chain before it, whatever follows; NaN likewise."""
    weights: NDArray[np.float64]
    """How much each counts, 0 to 1."""
    guesses: NDArray[np.float64]
    """Share that each saves by a count of operations and bytes, large ones cut off."""
    states: NDArray[np.int64]
    """The state that each is a step of."""


def stated_steps(table: WindowTable) -> StatedSteps:
    """Return what a table says of its steps."""
    arrays = table.arrays
    states = table.step_states()
    believed = believed_shares(table)
    timed = arrays["step_measured"] & table.measured_states()[states]
    variances = (arrays["step_half"].astype(np.float64) ** 2 + table.state_halves()[states] ** 2) / Z95**2
    guesses = np.clip(arrays["step_guess"].astype(np.float64), -MOST_GUESS, MOST_GUESS)

    def gained(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each step gains, where states save so much."""
        beyond = np.where(arrays["step_failed"], -MOST_LOST, shares[arrays["step_next"]] - believed[states])
        return np.where(timed, np.maximum(beyond, -MOST_LOST), np.nan)

    gains, own = gained(table.best_shares(believed)), gained(believed)
    return StatedSteps(gains, own, SPREAD**2 / (SPREAD**2 + variances), guesses, states)


def chains_of(table: WindowTable) -> list[tuple[tuple[str, ...], tuple[str, ...], int]]:
    """Return, for each state, the rules of its chain, their families, and the number of the chain's class; -1 for
    roots."""
    arrays = table.arrays
    found: list[tuple[tuple[str, ...], tuple[str, ...], int]] = [((), (), -1)] * table.states
    for state in range(table.states):  # steps lead to states with larger numbers
        rules, families, shapes = found[state]
        for step in range(int(arrays["step_start"][state]), int(arrays["step_start"][state + 1])):
            rule, family = table.rules[arrays["step_rule"][step]], table.families[arrays["step_family"][step]]
            first = int(arrays["step_class"][step]) if shapes < 0 else shapes
            found[int(arrays["step_next"][step])] = ((*rules, rule), (*families, family), first)
    return found


class MeansLearner:
    """Learns means from parts of one table, and forecasts its steps by them.

    Args:
        table: the table.
    """

    def __init__(self, table: WindowTable) -> None:
        self._told = told = stated_steps(table)
        chains = chains_of(table)
        self._chains = [
            (rules, families, table.classes[shapes])
            for rules, families, shapes in (chains[after] for after in table.arrays["step_next"].tolist())
        ]
        self._keys = [step_keys(*chain) for chain in self._chains]
        self._windows = table.arrays["state_window"][told.states]

    def learnt(self, windows: Collection[int] | None = None) -> StepMeans:
        """Return means of what the steps of some windows save; by default of all."""
        known = np.isfinite(self._told.gains)
        if windows is not None:
            known &= np.isin(self._windows, list(windows))
        numbers = np.flatnonzero(known)
        return StepMeans(self._means(self._told.gains, numbers), self._means(self._told.own, numbers))

    def _means(self, gains: NDArray[np.float64], numbers: NDArray[np.intp]) -> MeansOnLine:
        """Return means of what steps of some numbers gain."""
        told = self._told
        found = MeansOnLine(line=_line(told.guesses[numbers], gains[numbers], told.weights[numbers]))
        for step in numbers.tolist():
            beyond = float(gains[step]) - found.at(float(told.guesses[step]))
            found.means.add(self._keys[step], beyond, float(told.weights[step]))
        return found

    def forecast(self, means: StepMeans, step: int) -> Forecast | None:
        """Return what means forecast of a step of the table; None where its rule was never timed."""
        return means.forecast(*self._chains[step], float(self._told.guesses[step]))

    def on_line(self, means: StepMeans, step: int) -> float:
        """Return what the line of means says of a step of the table."""
        return means.on_line(float(self._told.guesses[step]))


def learnt_means(table: WindowTable, windows: Collection[int] | None = None) -> StepMeans:
    """Return means of what the steps of some windows save; by default of all."""
    return MeansLearner(table).learnt(windows)


def _line(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return the weighted least-squares line: its value at 0, and its slope."""
    total = float(weights.sum())
    if total <= 0.0:
        return 0.0, 0.0
    mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
    spread = float(weights @ (x - mean_x) ** 2)
    slope = float(weights @ ((x - mean_x) * (y - mean_y))) / spread if spread > 1e-9 else 0.0
    return mean_y - slope * mean_x, slope
