"""Means of what steps save, learnt from a table of windows."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from agents.effects.believed import believed_shares
from agents.effects.step_means import (
    MOST_GUESS,
    MOST_LOST,
    ChainStep,
    Forecast,
    MeansOnLine,
    StepMeans,
    weight_of,
)
from agents.effects.timed_steps import TimedStep
from envs.window.table import WindowTable
from graph_rewrite.latency.device import machine_kind


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
    weights = weight_of(arrays["step_half"].astype(np.float64), table.state_halves()[states])
    guesses = np.clip(arrays["step_guess"].astype(np.float64), -MOST_GUESS, MOST_GUESS)

    def gained(shares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each step gains, where states save so much."""
        beyond = np.where(arrays["step_failed"], -MOST_LOST, shares[arrays["step_next"]] - believed[states])
        return np.where(timed, np.maximum(beyond, -MOST_LOST), np.nan)

    gains, own = gained(table.best_shares(believed)), gained(believed)
    return StatedSteps(gains, own, weights, guesses, states)


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


@dataclass(frozen=True, slots=True)
class _Gains:
    """Gains of some steps: a list of their keys, and arrays of estimates, gains and weights."""

    keys: list[list[str]]
    guesses: NDArray[np.float64]
    values: NDArray[np.float64]
    weights: NDArray[np.float64]


class MeansLearner:
    """Learns means from parts of one table, and forecasts its steps by them.

    Args:
        table: the table.
    """

    def __init__(self, table: WindowTable) -> None:
        self._told = told = stated_steps(table)
        chains = chains_of(table)
        self._windows = table.arrays["state_window"][told.states]
        windows = [table.windows[window].fingerprint for window in self._windows.tolist()]
        reached = [chains[after] for after in table.arrays["step_next"].tolist()]
        self._steps = [
            ChainStep(rules, families, table.classes[shapes], guess, window)
            for (rules, families, shapes), guess, window in zip(reached, told.guesses.tolist(), windows, strict=True)
        ]
        self._keys = [step.names for step in self._steps]
        self._kinds = [window.device and machine_kind(window.provider, window.device) for window in table.windows]

    @property
    def kinds(self) -> set[str]:
        """The kinds of machine (`graph_rewrite.latency.device.machine_kind`) that are told of windows."""
        return {kind for kind in self._kinds if kind}

    def learnt(self, windows: Collection[int] | None = None) -> StepMeans:
        """Return means of what the steps of some windows save; by default of all."""
        return means_of([(self, windows)])

    def timed(self, windows: Collection[int] | None, kind: str | None = None) -> NDArray[np.intp]:
        """Return the numbers of the steps that were timed in some windows, by default in all.

        Args:
            kind: the kind of machine that they were timed on; by default any.
        """
        known = np.isfinite(self._told.gains)
        if windows is not None:
            known &= np.isin(self._windows, list(windows))
        if kind is not None:
            known &= np.isin(self._windows, [number for number, one in enumerate(self._kinds) if one == kind])
        return np.flatnonzero(known)

    def timed_steps(self, kind: str) -> dict[str, TimedStep]:
        """Return the steps that were timed on a kind of machine, as searches leave them: by the chain and its window.
        Of several timings of one the most precise counts."""
        told, found = self._told, dict[str, TimedStep]()
        for step in sorted(self.timed(None, kind).tolist(), key=lambda step: float(told.weights[step])):
            found[self._keys[step][0]] = TimedStep(
                self._keys[step], float(told.guesses[step]), float(told.own[step]), float(told.gains[step]),
                float(told.weights[step]),
            )  # fmt: skip
        return found

    def gains(self, numbers: NDArray[np.intp], *, own: bool) -> _Gains:
        """Return what steps of some numbers gain: by themselves (`own`), or at best with what they lead to."""
        told = self._told
        values = told.own if own else told.gains
        keys = [self._keys[step] for step in numbers.tolist()]
        return _Gains(keys, told.guesses[numbers], values[numbers], told.weights[numbers])

    def forecast(self, means: StepMeans, step: int) -> Forecast | None:
        """Return what means forecast of a step of the table; None where its rule was never timed."""
        return means.forecast(*self._steps[step])

    def corrected(self, means: StepMeans, step: int, predicted: Forecast) -> Forecast:
        """Return what a model predicts of a step of the table, corrected by means."""
        return means.corrected(self._steps[step].names, float(self._told.guesses[step]), predicted)

    def on_line(self, means: StepMeans, step: int) -> float:
        """Return what the line of means says of a step of the table."""
        return means.on_line(float(self._told.guesses[step]))


Part = tuple[MeansLearner, Collection[int] | None]
"""A table, and the windows of it that count; None for all."""


def learnt_means(table: WindowTable, windows: Collection[int] | None = None) -> StepMeans:
    """Return means of what the steps of some windows save; by default of all."""
    return MeansLearner(table).learnt(windows)


def means_of(parts: Sequence[Part]) -> StepMeans:
    """Return means of what the steps of parts of tables save, whatever they were timed on."""
    return _means([(learner, learner.timed(windows)) for learner, windows in parts])


def means_by_kind(parts: Sequence[Part], means: StepMeans) -> dict[str, StepMeans]:
    """Return what steps save on each kind of machine beyond what means say of them, learnt from parts of tables."""
    kinds = sorted({kind for learner, _ in parts for kind in learner.kinds})
    return {kind: means_beyond(parts, means, kind) for kind in kinds}


def means_beyond(parts: Sequence[Part], means: StepMeans, kind: str) -> StepMeans:
    """Return what steps save on a kind of machine beyond what means say of them, learnt from parts of tables."""
    return _means([(learner, learner.timed(windows, kind)) for learner, windows in parts], means)


def means_on(parts: Sequence[Part], kind: str) -> StepMeans:
    """Return means of what the steps of parts of tables save on a kind of machine: those of all, and what it saves
    beyond them."""
    means = means_of(parts)
    return means.extended(means_beyond(parts, means, kind))


def _means(chosen: Sequence[tuple[MeansLearner, NDArray[np.intp]]], base: StepMeans | None = None) -> StepMeans:
    """Return means of what steps of some numbers save, of each table; with a base, beyond what that says of them."""

    def of(*, own: bool) -> MeansOnLine:
        gains = [learner.gains(numbers, own=own) for learner, numbers in chosen]
        return _fitted(gains if base is None else [_beyond(one, base, own=own) for one in gains])

    return StepMeans(of(own=False), of(own=True))


def _beyond(gains: _Gains, means: StepMeans, *, own: bool) -> _Gains:
    told = zip(gains.keys, gains.guesses.tolist(), strict=True)
    expected = [means.expect(keys, guess)[1 if own else 0].mean for keys, guess in told]
    return replace(gains, values=gains.values - np.array(expected))


def _fitted(gains: Sequence[_Gains]) -> MeansOnLine:
    """Return a line through gains, and means of what lies beyond it."""
    guesses, values, weights = (
        np.concatenate([getattr(one, name) for one in gains]) for name in ("guesses", "values", "weights")
    )
    found = MeansOnLine(line=_line(guesses, values, weights))
    keys = [each for one in gains for each in one.keys]
    for names, guess, value, weight in zip(keys, guesses.tolist(), values.tolist(), weights.tolist(), strict=True):
        found.means.add(names, value - found.at(guess), weight)
    return found


def _line(x: NDArray[np.float64], y: NDArray[np.float64], weights: NDArray[np.float64]) -> tuple[float, float]:
    """Return the weighted least-squares line: its value at 0, and its slope."""
    total = float(weights.sum())
    if total <= 0.0:
        return 0.0, 0.0
    mean_x, mean_y = float(weights @ x) / total, float(weights @ y) / total
    spread = float(weights @ (x - mean_x) ** 2)
    slope = float(weights @ ((x - mean_x) * (y - mean_y))) / spread if spread > 1e-9 else 0.0
    return mean_y - slope * mean_x, slope
