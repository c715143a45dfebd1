"""A draft: chains that are forecast to save, put together before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agents.effects.step_means import Forecast
from agents.regional.assembly import choose
from agents.regional.attempts import Attempt, AttemptLists, WindowState, reached
from agents.regional.chains import RewriteChain
from agents.regional.experience import LoggedChain
from agents.regional.options import RegionalOptions
from graph_rewrite.task.site_windows import SiteClass

MakeChain = Callable[[WindowState, float], RewriteChain | None]
"""Makes the chain that leads to a state, which saves so many seconds per inference at all sites; None where that is
next to nothing of its window."""


@dataclass(frozen=True, slots=True)
class Drafter:
    """Chooses chains by what other models say of their steps. Of first steps that overlap, the one that is hoped to
    lead to most is carried on by steps that are hoped to lead to most. The part of that chain stays that is hoped to
    save most by itself.

    Args:
        lists: lists the steps of states, with forecasts.
        options: settings of the search.
        seconds_of: tells how long the window of a class takes, in seconds.
        make_chain: makes chains.
        worth: seconds per inference that a chain must be hoped to save.
    """

    lists: AttemptLists
    options: RegionalOptions
    seconds_of: Callable[[SiteClass], float]
    make_chain: MakeChain
    worth: float

    def chains(self, first: Sequence[Attempt], until: Callable[[], bool]) -> list[RewriteChain]:
        """Return chains that do not overlap.

        Args:
            first: the first steps of all windows, with forecasts.
            until: says that time is up: chains that are not carried on by then stay as they are.
        """
        known = [step for step in first if self._known(step) is not None]
        leading = [(chain, step) for step in known if (chain := self._leading(step)) is not None]
        chosen = {id(chain) for chain in self._chosen(chain for chain, _ in leading)}
        found = [self._carried_on(step, until) for chain, step in leading if id(chain) in chosen]
        found += [self._carried_on(step, lambda: True) for step in known]
        return self._chosen(chain for chain in found if chain is not None)

    def _chosen(self, chains: Iterable[RewriteChain]) -> list[RewriteChain]:
        return choose(chain for chain in chains if chain.lower_bound >= self.worth)

    def _known(self, step: Attempt | None) -> Forecast | None:
        """Return what is forecast of a step; None where that rests on too little."""
        forecast = None if step is None else step.forecast
        return None if forecast is None or forecast.labels < self.options.few else forecast

    def _leading(self, step: Attempt) -> RewriteChain | None:
        """Return a step as a chain that saves what it is hoped to lead to."""
        forecast = self._known(step)
        return None if forecast is None else self._chain(step, self._hoped(forecast.mean, forecast.deviation))

    def _carried_on(self, step: Attempt, until: Callable[[], bool]) -> RewriteChain | None:
        """Go on from a step by those that are hoped to lead to most. Return the part of that chain, from its beginning
        on, that is hoped to save most; None where no part saves anything."""
        best: RewriteChain | None = None
        mean = variance = 0.0
        following: Attempt | None = step
        while following is not None and (forecast := self._known(following)) is not None and forecast.own is not None:
            mean, variance = mean + forecast.own.mean, variance + forecast.own.deviation**2
            chain = self._chain(following, self._hoped(mean, math.sqrt(variance)))
            if chain is not None and (best is None or chain.lower_bound > best.lower_bound):
                best = chain
            following = self._next(following, mean, until)
        return best

    def _next(self, step: Attempt, share: float, until: Callable[[], bool]) -> Attempt | None:
        """Return the step behind another one that is hoped to lead to most; None where none is hoped to lead to
        anything.

        Args:
            share: of the window's time, which the chain up to that step saves.
        """
        state = self._state(step, share)
        if until() or not state.may_go_on(self.options):
            return None
        groups = self.lists.groups(state, step.state.graph)
        steps = self.lists.predicted(self.lists.steps(state, groups, until))
        hopes = [(self._hoped(known.mean, known.deviation), one) for one in steps if (known := self._known(one))]
        best = max(hopes, key=lambda pair: pair[0], default=None)
        return None if best is None or best[0] <= 0.0 else best[1]

    def _hoped(self, mean: float, deviation: float) -> float:
        return mean + self.options.drafting_hope * deviation

    def _chain(self, step: Attempt, share: float) -> RewriteChain | None:
        """Return the chain that ends with a step and saves a share of the window's time; None where that is next to
        nothing."""
        return self.make_chain(self._state(step, share), share * self._seconds(step.state.site_class))

    def _state(self, step: Attempt, share: float) -> WindowState:
        """Return the state after a step."""
        return reached(step, share, share * self._seconds(step.state.site_class), LoggedChain())

    def _seconds(self, site_class: SiteClass) -> float:
        """Return the seconds per inference that all windows of a class take."""
        return len(site_class.sites) * self.seconds_of(site_class)
