"""A draft: chains that are forecast to save, put together before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from agents.effects.step_means import Forecast
from agents.regional.assembly import choose
from agents.regional.attempts import Attempt, AttemptLists, WindowState, reached
from agents.regional.chains import RewriteChain
from agents.regional.experience import DeferredChain
from agents.regional.options import RegionalOptions
from graph_rewrite.task.site_windows import SiteClass

MakeChain = Callable[[WindowState, float], RewriteChain | None]
"""Makes the chain that leads to a state, which saves so many seconds per inference at all sites; None where that is
next to nothing of its window."""


@dataclass(frozen=True, slots=True)
class MeasuredDraft:
    """The outcome of a draft that was measured."""

    chains: Sequence[RewriteChain]
    """Its chains where it is faster than the original, else none."""
    is_last: bool
    """Whether no time is left to measure another graph."""


NO_DRAFT = MeasuredDraft((), False)


@dataclass(frozen=True, slots=True)
class Drafter:
    """Chooses chains by what other models say of their steps. Of first steps that overlap, the one that is hoped to
    lead to most is carried on by steps that are hoped to lead to most. The part of that chain stays that is hoped to
    save most by itself; where that is less than what an overlapping step is hoped to lead to, that one is carried on
    too.

    Args:
        lists: lists the steps of states, with forecasts.
        options: settings of the search.
        seconds_of: tells how many seconds per inference all windows of a class take.
        make_chain: makes chains.
        worth: seconds per inference that a chain must be hoped to save.
    """

    lists: AttemptLists
    options: RegionalOptions
    seconds_of: Callable[[SiteClass], float]
    make_chain: MakeChain
    worth: float

    def chains(self, first: Sequence[Attempt], until: Callable[[], bool]) -> list[RewriteChain]:
        """Return those that `best_of` chooses, and others that could take their places, should they save less than is
        forecast.

        Args:
            first: the first steps of all windows, with forecasts.
            until: says that time is up: chains that are not carried on by then stay as they are.
        """
        known = [(step, forecast) for step in first if (forecast := self._known(step)) is not None]
        offered = [self._chain(step, self._hoped(told.mean, told.deviation)) for step, told in known]
        alone = [self._carried_on(step, lambda: True) for step, _ in known]
        open_ones = set(range(len(known)))
        while True:
            chosen = self._chosen([*offered, *alone])
            kept = {id(chain) for chain in chosen}
            leading = [number for number in open_ones if id(offered[number]) in kept]
            if not leading:
                carried_on = (chain for number, chain in enumerate(offered) if number not in open_ones)
                return self._worthwhile([*carried_on, *alone])
            for number in leading:
                offered[number] = self._carried_on(known[number][0], until)
            open_ones.difference_update(leading)

    def _chosen(self, chains: Iterable[RewriteChain | None]) -> list[RewriteChain]:
        return choose(self._worthwhile(chains))

    def _worthwhile(self, chains: Iterable[RewriteChain | None]) -> list[RewriteChain]:
        return [chain for chain in chains if chain is not None and chain.lower_bound >= self.worth]

    def _known(self, step: Attempt) -> Forecast | None:
        """Return what is forecast of a step; None where that rests on too little."""
        return None if step.forecast is None or step.forecast.labels < self.options.few else step.forecast

    def _carried_on(self, step: Attempt, until: Callable[[], bool]) -> RewriteChain | None:
        """Go on from a step by those that are hoped to lead to most. Return the part of that chain, from its beginning
        on, that is hoped to save most; None where no part saves anything. What it is hoped to save beyond its mean is
        its first step's: else each further step would be worth something for being uncertain."""
        best: RewriteChain | None = None
        mean = deviation = 0.0
        following: Attempt | None = step
        while following is not None and (forecast := self._known(following)) is not None and forecast.own is not None:
            mean += forecast.own.mean
            deviation = deviation or forecast.own.deviation
            chain = self._chain(following, self._hoped(mean, deviation))
            if chain is not None and (best is None or chain.lower_bound > best.lower_bound):
                best = chain
            following = self._next(following, mean, until)
        return best

    def _next(self, step: Attempt, share: float, until: Callable[[], bool]) -> Attempt | None:
        """Return the step that follows another one, else the one behind it that is hoped to lead to most; None where
        none is hoped to lead to anything. Steps like those that finish a draft are left to its finishing, which takes
        in whole parts of the model (`agents.regional.finishing`).

        Args:
            share: of the window's time, which the chain up to that step saves.
        """
        state = self._state(step, share)
        following = self.lists.following(state, until)
        if following is not None or until() or not state.may_go_on(self.options):
            return following
        groups = self.lists.groups(state, step.state.graph)
        finishing = {rule.family for rule in self.lists.search.problem.rewriter.rules if rule.covers_parts}
        offered = [group for group in groups if group[0].rule.family not in finishing]
        steps = self.lists.predicted(self.lists.steps(state, offered, until))
        hopes = [(self._hoped(known.mean, known.deviation), one) for one in steps if (known := self._known(one))]
        best = max(hopes, key=lambda pair: pair[0], default=None)
        return None if best is None or best[0] <= 0.0 else best[1]

    def _hoped(self, mean: float, deviation: float) -> float:
        return mean + self.options.drafting_hope * deviation

    def _chain(self, step: Attempt, share: float) -> RewriteChain | None:
        """Return the chain that ends with a step and saves a share of the window's time; None where that is next to
        nothing."""
        return self.make_chain(self._state(step, share), share * self.seconds_of(step.state.site_class))

    def _state(self, step: Attempt, share: float) -> WindowState:
        """Return the state after a step."""
        logged = DeferredChain(lambda: self.lists.chain_of(step))
        return reached(step, share, share * self.seconds_of(step.state.site_class), logged)
