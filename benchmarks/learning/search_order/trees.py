"""Tree search over whole models, replayed: windows save what a table says, and a timing is one of the whole model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agents.mcts.promises import joint_saving, priors_of
from agents.regional.gains import Effects, NextMove
from agents.regional.options import DEFAULTS
from benchmarks.learning.search_order.replaying import Predictions, SearchedNetwork, TableFacts
from graph_rewrite.latency import Latency

MOST_SAVED = 0.95
"""Share of the model's time that windows save together at most: those that share nodes count beside each other."""


@dataclass(frozen=True, slots=True)
class ModelState:
    """A model in which every window is in some state of the table."""

    states: tuple[int, ...]
    """By window, in the order of the network's."""
    over: bool = False

    @property
    def key(self) -> str:
        """The states as a text."""
        return " ".join(map(str, self.states))

    def measured(self, latency: Latency) -> ModelState:
        """Return the same: nothing is observed."""
        return self


@dataclass
class TableGame:
    """Rewrites of a network's windows, each an action by the number of its step, and looked up times of the model.

    Args:
        facts: of the table.
        network: its windows.
        budget: timings of whole models.
    """

    facts: TableFacts
    network: SearchedNetwork
    budget: int
    had: list[float] = field(default_factory=list)
    """Share of the model's time that the fastest model so far is credited with, by timings; the original has none."""
    _best: float = 1.0
    _known: dict[str, Latency] = field(default_factory=dict)

    @property
    def root(self) -> ModelState:
        """The model before any rewrite."""
        return ModelState(tuple(self.facts.arrays["window_root"][window] for window in self.network.windows))

    @property
    def can_measure(self) -> bool:
        return len(self.had) < self.budget

    @property
    def can_step(self) -> bool:
        return True

    def step(self, state: ModelState, action: int) -> ModelState | None:
        """Return the state after a step; None where it failed."""
        arrays, before = self.facts.arrays, self.facts.state_of[action]
        if arrays["step_failed"][action]:
            return None
        # A step may have given way to one behind it: the window is told by where it is.
        window = arrays["state_window"][before]
        place = self.network.windows.index(window)
        states = list(state.states)
        states[place] = arrays["step_next"][action]
        return ModelState(tuple(states))

    def measure(self, state: ModelState) -> Latency:
        """Return the looked up time of a model, relative to the original's."""
        found = self._known.get(state.key)
        if found is None:
            saved = self._total(state, self.facts.arrays["state_share"])
            speedup = 1.0 / (1.0 - min(saved, MOST_SAVED))
            found = self._known[state.key] = Latency(1.0 / speedup, speedup, (speedup, speedup), 1, 1.0)
            if state != self.root:
                last = self.had[-1] if self.had else 0.0
                self.had.append(self._total(state, self.facts.saved) if speedup > self._best else last)
                self._best = max(self._best, speedup)
        return found

    def _total(self, state: ModelState, shares: Sequence[float] | NDArray[np.float64]) -> float:
        weights = (self.facts.table.windows[window].weight for window in self.network.windows)
        return float(sum(weight * shares[one] for weight, one in zip(weights, state.states, strict=True)))


@dataclass(frozen=True)
class UniformTableGuide:
    """Knows nothing: rewrites of the most sites come first, ties by a seeded shuffle."""

    game: TableGame

    def priors(self, state: ModelState, rng: np.random.Generator) -> dict[int, float]:
        facts = self.game.facts
        legal = rng.permutation([step for one in state.states for step in facts.steps(one)]).astype(int).tolist()
        windows = facts.table.windows
        sites = {
            step: windows[number].weight / windows[number].seconds
            for step in legal
            for number in [facts.arrays["state_window"][facts.state_of[step]]]
        }
        return dict.fromkeys(sorted(legal, key=lambda step: -sites[step]), 1.0 / max(1, len(legal)))

    def gain(self, state: ModelState, speedup: float) -> float:
        return 0.0


@dataclass(frozen=True)
class ForecastTableGuide:
    """Knows what was learnt from other architectures, as `agents.mcts.savings.SavingsGuide` does.

    Args:
        game: the network.
        predictions: say what steps save.
        critic: say also what is still to be gained.
    """

    game: TableGame
    predictions: Predictions
    critic: bool = True

    def priors(self, state: ModelState, rng: np.random.Generator) -> dict[int, float]:
        promises: dict[int, float | None] = {}
        for window, here in zip(self.game.network.windows, state.states, strict=True):
            for step in self.game.facts.steps(here):
                promises[step] = self.game.facts.table.windows[window].weight * self._promise(here, step)
        return priors_of(promises, DEFAULTS.worth)

    def gain(self, state: ModelState, speedup: float) -> float:
        if not self.critic:
            return 0.0
        savings = []
        for place, (window, here) in enumerate(zip(self.game.network.windows, state.states, strict=True)):
            for step in self.game.facts.steps(here):
                forecast = self.predictions.forecasts.get(step)
                if forecast is not None:
                    savings.append((self.game.facts.table.windows[window].weight * forecast.mean, {place}))
        return joint_saving(savings)

    def _promise(self, here: int, step: int) -> float:
        facts = self.game.facts
        move = NextMove(
            facts.keys(step), facts.arrays["state_depth"][here], 0.0, facts.arrays["step_guess"][step], None,
            self.predictions.forecasts.get(step),
        )  # fmt: skip
        return move.promise(Effects(), DEFAULTS, DEFAULTS.hopeful[0], False)
