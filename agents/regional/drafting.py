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
    """Chooses chains by what other models say of their steps. In every class of sites the surest step comes first, is
    carried on by the surest ones behind it, and stays where no surer chain rewrites the same nodes.

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
        alone = [(chain, step) for step in first if (chain := self._chain(step, 0.0)) is not None]
        chosen = {id(chain) for chain in choose(chain for chain, _ in alone if chain.lower_bound >= self.worth)}
        return choose(self._carried_on(chain, step, until) for chain, step in alone if id(chain) in chosen)

    def _carried_on(self, chain: RewriteChain, step: Attempt, until: Callable[[], bool]) -> RewriteChain:
        """Return a chain with the surest steps behind it, as long as they add to what it surely saves."""
        variance = 0.0
        while step.forecast is not None:
            variance += step.forecast.deviation**2
            state = self._state(step)
            if until() or not state.may_go_on(self.options):
                break
            groups = self.lists.groups(state, step.state.graph)
            further = self.lists.predicted(self.lists.steps(state, groups, until))
            known = [
                (one, one.forecast) for one in further if one.forecast is not None and self._is_known(one.forecast)
            ]
            if not known:
                break
            following = max(known, key=lambda pair: self._surely(pair[1]))[0]
            longer = self._chain(following, variance)
            if longer is None or longer.lower_bound <= chain.lower_bound:
                break
            chain, step = longer, following
        return chain

    def _surely(self, forecast: Forecast) -> float:
        return forecast.mean - self.options.drafting_doubt * forecast.deviation

    def _is_known(self, forecast: Forecast) -> bool:
        return forecast.labels >= self.options.few

    def _chain(self, step: Attempt, variance: float) -> RewriteChain | None:
        """Return the chain that ends with a step, as it is forecast; None where little is known of the step, or it
        saves next to nothing.

        Args:
            step: the last step.
            variance: of what the steps before it save, in shares of the window's time.
        """
        forecast = step.forecast
        if forecast is None or not self._is_known(forecast):
            return None
        state = self._state(step)
        seconds = self._seconds(state.site_class)
        half = self.options.drafting_doubt * math.sqrt(variance + forecast.deviation**2)
        return self.make_chain(state, state.share * seconds, half * seconds)

    def _state(self, step: Attempt) -> WindowState:
        """Return the state after a step, as it is forecast."""
        saved = 0.0 if step.forecast is None else step.forecast.mean
        share = min(step.state.share + saved, self.options.most_saved)
        return reached(step, share, share * self._seconds(step.state.site_class), LoggedChain())

    def _seconds(self, site_class: SiteClass) -> float:
        """Return the seconds per inference that all windows of a class take."""
        return len(site_class.sites) * self.seconds_of(site_class)
