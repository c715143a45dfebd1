"""A search by windows whose timings are looked up in a table: no clock, the same for the same table."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agents.effects.believed import believed_shares, sure_shares
from agents.effects.learning_means import chains_of
from agents.effects.step_means import Forecast
from agents.regional.gains import FURTHER, Effects, Key, NextMove
from agents.regional.options import RegionalOptions
from envs.window.table import WindowTable

OPTIONS = RegionalOptions()


@dataclass(frozen=True, slots=True)
class SearchedNetwork:
    """The windows of one model under one deployment, which a search looks at together."""

    name: str
    family: str
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A chain that is timed as a whole before anything else."""

    step: int
    """Number of its last step."""
    hope: float
    """Share of the window's time that the chain is hoped to save."""
    before: float
    """Share that the chain before its last step is predicted to save."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """An opinion of steps before they are timed, by their numbers; what it lacks goes by `regional`'s constants."""

    hopes: Mapping[int, float] = field(default_factory=dict)
    """Shares of the window's time that steps are hoped to save beyond the chain before."""
    forecasts: Mapping[int, Forecast] = field(default_factory=dict)
    proposals: Sequence[Proposal] = ()


@dataclass(frozen=True, slots=True)
class Timing:
    """A timing of a replayed search."""

    window: int
    step: int
    cost_s: float
    """Seconds that it took when it was made."""


@dataclass(frozen=True, slots=True)
class ReplayedSearch:
    """The timings of a search, in their order."""

    timings: tuple[Timing, ...]
    promising: int
    """Timings after which nothing promised enough any more: there the screen of a search ends."""


class TableFacts:
    """A table as replayed searches read it.

    Args:
        table: the table.
        sure: credit chains with the lower bound of what they save, by which a search ranks them; else with what is
            likely.
    """

    def __init__(self, table: WindowTable, sure: bool = True) -> None:
        self.arrays = {name: array.tolist() for name, array in table.arrays.items() if name in _READ}
        self.table, self.chains = table, chains_of(table)
        self.saved: NDArray[np.float64] = sure_shares(table) if sure else believed_shares(table)
        """Share of the window's time that the chain of each state is credited with."""
        self.state_of = table.step_states().tolist()

    def best_state(self, window: int) -> int:
        """Return the state of a window whose chain is credited with most."""
        root = self.arrays["window_root"][window]
        inside = self.table.arrays["state_window"][root:] == window  # its states follow one another
        return int(root + np.argmax(self.saved[root:][inside]))

    def best_saved(self, window: int) -> float:
        """Return the share of the model's time that the best chain of a window is credited with."""
        return self.table.windows[window].weight * max(0.0, float(self.saved[self.best_state(window)]))

    def keys(self, step: int) -> list[Key]:
        """Return what a search knows a step by, as `agents.regional.attempts.Attempt.keys` does."""
        rules, families, _ = self.chains[self.arrays["step_next"][step]]
        return [rules, families[-2:], (rules[-1],)] if len(rules) > 1 else [rules]

    def steps(self, state: int) -> list[int]:
        """Return the numbers of the steps that may be timed next in a state. A step that was not timed by itself gives
        way to those behind it."""
        first, end = self.arrays["step_start"][state : state + 2]
        found: list[int] = []
        for step in range(first, end):
            found += [step] if self.arrays["step_measured"][step] else self.steps(self.arrays["step_next"][step])
        return found

    def networks(self, families: Collection[str] | None = None) -> list[SearchedNetwork]:
        """Return the networks of a table, those of some families, in the order of their names."""
        found: dict[tuple[str, str, int], list[int]] = {}
        for number, window in enumerate(self.table.windows):
            if families is None or window.family in families:
                context = int(self.table.arrays["window_context"][number])
                found.setdefault((window.family, window.model, context), []).append(number)
        return [
            SearchedNetwork(f"{model or family} ({context})", family, tuple(windows))
            for (family, model, context), windows in sorted(found.items())
        ]


_READ = (
    "step_start", "step_rule", "step_family", "step_share", "step_failed", "step_next", "step_measured", "step_guess",
    "step_cost", "state_window", "state_depth", "state_share", "window_root",
)  # fmt: skip
_LISTING = -1
_Attempt = tuple[int, int]
"""A state, and the number of a step of it; `_LISTING` to list the steps that it made possible."""


def drawn_search(facts: TableFacts, network: SearchedNetwork, random: np.random.Generator) -> ReplayedSearch:
    """Return a search that times any possible step next, each as likely as the others."""
    arrays = facts.arrays
    steps = [step for window in network.windows for step in facts.steps(arrays["window_root"][window])]
    timings: list[Timing] = []
    while steps:
        step = steps.pop(int(random.integers(len(steps))))
        timings.append(Timing(arrays["state_window"][facts.state_of[step]], step, arrays["step_cost"][step]))
        steps += facts.steps(arrays["step_next"][step])
    return ReplayedSearch(tuple(timings), len(timings))


class TableSearch:
    """A search of one network, as the screen of `regional` makes it, with all windows of all its rounds at once.

    Args:
        facts: of the table.
        network: its windows.
        predictions: say what steps save.
        options: of `regional`.
    """

    def __init__(
        self, facts: TableFacts, network: SearchedNetwork, predictions: Predictions, options: RegionalOptions = OPTIONS
    ) -> None:
        self._facts, self._predictions, self._options = facts, predictions, options
        self._effects, self._hopeful = Effects(), 0.0
        roots = [facts.arrays["window_root"][window] for window in network.windows]
        self._open: list[_Attempt] = [(facts.state_of[step], step) for root in roots for step in facts.steps(root)]
        self._known = dict.fromkeys(network.windows, 0.0)
        self._windows = {window: facts.table.windows[window] for window in network.windows}
        self._timings: list[Timing] = []

    def run(self) -> ReplayedSearch:
        """Time everything: proposals, what promises enough, what is tried out of curiosity, and what is left."""
        self._propose()
        for hopeful in self._options.hopeful:
            self._hopeful = hopeful
            self._explore(self._options.worth, curious=False)
        promising = len(self._timings)
        self._explore(self._options.worth, curious=True)
        self._explore(-np.inf, curious=False)
        return ReplayedSearch(tuple(self._timings), promising)

    def _propose(self) -> None:
        arrays, options = self._facts.arrays, self._options
        inside = [one for one in self._predictions.proposals if self._window_of(one.step) in self._known]

        def promise(one: Proposal) -> float:
            window = self._window_of(one.step)
            return self._windows[window].weight * min(one.hope, options.most_saved) - self._known[window]

        for one in sorted(inside, key=lambda one: -promise(one) / self._cost(self._window_of(one.step), True)):
            state = self._facts.state_of[one.step]
            if promise(one) < options.worth or not arrays["step_measured"][one.step]:
                continue
            if (state, one.step) in self._open:
                self._open.remove((state, one.step))
            self._take(state, one.step, one.before)

    def _explore(self, worth: float, curious: bool) -> None:
        while self._open:
            promises = [self._promise(attempt, curious) for attempt in self._open]
            rates = [
                (promise / self._cost(self._facts.arrays["state_window"][state], step != _LISTING), -place)
                for place, (promise, (state, step)) in enumerate(zip(promises, self._open, strict=True))
                if promise >= worth
            ]
            if not rates:
                return
            state, step = self._open.pop(-max(rates)[1])
            if step == _LISTING:
                self._list(state)
            else:
                self._take(state, step, self._facts.arrays["state_share"][state])

    def _list(self, state: int) -> None:
        steps = [(self._facts.state_of[step], step) for step in self._facts.steps(state)]
        if not steps:
            self._effects.record([self._further(state)], 0.0)
        timed = {timing.step for timing in self._timings}
        self._open += [attempt for attempt in steps if attempt[1] not in timed]

    def _take(self, state: int, step: int, before: float) -> None:
        arrays, window = self._facts.arrays, self._window_of(step)
        self._timings.append(Timing(window, step, arrays["step_cost"][step]))
        keys = self._facts.keys(step)[:2]
        if arrays["step_failed"][step]:
            self._effects.record(keys, -1.0)
            return
        share, after = arrays["step_share"][step], arrays["step_next"][step]
        self._known[window] = max(self._known[window], self._windows[window].weight * share)
        self._effects.record(keys, share - before)
        if arrays["state_depth"][state]:
            self._effects.record([self._further(state)], max(share - max(before, 0.0), 0.0))
        if arrays["state_depth"][after] < self._options.depth:
            self._open.append((after, _LISTING))

    def _promise(self, attempt: _Attempt, curious: bool) -> float:
        """Return what an attempt may save beyond what is known to be saved in its window, as a share of the model's
        time."""
        share = self._move(*attempt).promise(self._effects, self._options, self._hopeful, curious)
        window = self._facts.arrays["state_window"][attempt[0]]
        return self._windows[window].weight * share - self._known[window]

    def _move(self, state: int, step: int) -> NextMove:
        arrays, predictions = self._facts.arrays, self._predictions
        depth, before = arrays["state_depth"][state], arrays["state_share"][state]
        if step == _LISTING:
            return NextMove([self._further(state)], depth, before)
        return NextMove(
            self._facts.keys(step), depth, before, arrays["step_guess"][step], predictions.hopes.get(step),
            predictions.forecasts.get(step),
        )  # fmt: skip

    def _cost(self, window: int, timed: bool) -> float:
        options = self._options
        return options.attempt_s + (options.attempt_runs * self._windows[window].seconds if timed else 0.0)

    def _window_of(self, step: int) -> int:
        return int(self._facts.arrays["state_window"][self._facts.state_of[step]])

    def _further(self, state: int) -> Key:
        return (self._facts.chains[state][0][-1], FURTHER)
