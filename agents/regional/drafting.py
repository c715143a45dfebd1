"""A draft: chains that are forecast to save, put together before anything is timed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.effects.step_means import Forecast
from agents.regional.assembly import choose
from agents.regional.attempts import Attempt, AttemptLists, WindowState, reached
from agents.regional.chains import RewriteChain
from agents.regional.experience import LoggedChain
from agents.regional.options import RegionalOptions
from graph_rewrite.task.site_windows import SiteClass

MakeChain = Callable[[WindowState, float, float], RewriteChain | None]
"""Makes the chain that leads to a state, which saves so many seconds per inference at all sites, give or take others;
None where that is next to nothing of its window."""


@dataclass(frozen=True, slots=True)
class Drafter:
    """Chooses chains by what other models say of their steps. Of first steps that overlap, the one that surely leads to
    most is carried on by steps that surely lead to most; the part of that chain stays that surely saves most by itself.

    Args:
        lists: lists the steps of states, with forecasts.
        options: settings of the search.
        seconds_of: tells how long the window of a class takes, in seconds.
        make_chain: makes chains.
        worth: seconds per inference that a chain must surely save.
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
        alone = [chain for step in first if (chain := self._alone(step)) is not None]
        hopes = [(chain, step) for step in first if (chain := self._hoped(step)) is not None]
        chosen = {id(chain) for chain in choose(chain for chain, _ in hopes if chain.lower_bound >= self.worth)}
        carried = [self._carried_on(step, until) for chain, step in hopes if id(chain) in chosen]
        found = [*(chain for chain in carried if chain is not None), *alone]
        return choose(chain for chain in found if chain.lower_bound >= self.worth)

    def _alone(self, step: Attempt) -> RewriteChain | None:
        """Return a step by itself, with what it is expected to save; None where that is next to nothing or unknown."""
        own = None if step.forecast is None or not self._is_known(step.forecast) else step.forecast.own
        return None if own is None else self._chain(step, own.mean, own.deviation)

    def _hoped(self, step: Attempt) -> RewriteChain | None:
        """Return a step with what it is expected to lead to; None where that is next to nothing or unknown."""
        forecast = step.forecast
        if forecast is None or not self._is_known(forecast):
            return None
        return self._chain(step, forecast.mean, forecast.deviation)

    def _carried_on(self, step: Attempt, until: Callable[[], bool]) -> RewriteChain | None:
        """Go on from a step by those that are expected to lead to most. Return the part of that chain, from its
        beginning on, that surely saves most; None where no part saves anything."""
        best: RewriteChain | None = None
        share = variance = 0.0
        following: Attempt | None = step
        while following is not None and following.forecast is not None and following.forecast.own is not None:
            share += following.forecast.own.mean
            variance += following.forecast.own.deviation**2
            chain = self._chain(following, share, math.sqrt(variance))
            if chain is not None and (best is None or chain.lower_bound > best.lower_bound):
                best = chain
            following = self._next(following, share, until)
        return best

    def _next(self, step: Attempt, share: float, until: Callable[[], bool]) -> Attempt | None:
        """Return the step behind another one that surely leads to most; None where none surely leads to anything."""
        state = self._state(step, share)
        if until() or not state.may_go_on(self.options):
            return None
        groups = self.lists.groups(state, step.state.graph)
        best, most = None, 0.0
        for one in self.lists.predicted(self.lists.steps(state, groups, until)):
            if one.forecast is None or not self._is_known(one.forecast):
                continue
            surely = one.forecast.mean - self.options.drafting_doubt * one.forecast.deviation
            if surely > most:
                best, most = one, surely
        return best

    def _is_known(self, forecast: Forecast) -> bool:
        return forecast.labels >= self.options.few

    def _chain(self, step: Attempt, share: float, deviation: float) -> RewriteChain | None:
        """Return the chain that ends with a step; None where it saves next to nothing.

        Args:
            step: the last step.
            share: share of the window's time that the chain saves.
            deviation: its standard deviation.
        """
        seconds = self._seconds(step.state.site_class)
        return self.make_chain(
            self._state(step, share), share * seconds, self.options.drafting_doubt * deviation * seconds
        )

    def _state(self, step: Attempt, share: float) -> WindowState:
        """Return the state after a step."""
        return reached(step, share, share * self._seconds(step.state.site_class), LoggedChain())

    def _seconds(self, site_class: SiteClass) -> float:
        """Return the seconds per inference that all windows of a class take."""
        return len(site_class.sites) * self.seconds_of(site_class)
