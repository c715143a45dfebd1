"""Proposals: the chains that a policy chooses in windows before anything is timed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from agents.regional.attempts import Attempt, AttemptLists, candidate_of, reached
from agents.regional.options import RegionalOptions
from agents.regional.prior import ChainPolicy
from graph_rewrite.task.site_windows import SiteClass

if TYPE_CHECKING:
    from agents.universal.opinion import Opinion

HOPE = 0.3
"""Standard deviations above its mean that a prediction is hoped to reach: what is little known is tried."""


@dataclass(frozen=True, slots=True)
class Proposer:
    """Follows a policy through windows: in each, from its likeliest first steps, it takes the likeliest step until that
    is to stop. Nothing is timed; the steps before the last one count as saving what is predicted.

    Args:
        lists: lists the steps of states.
        policy: chooses and predicts.
        options: settings of the search.
        seconds_of: tells how many seconds per inference all windows of a class take.
        worth: seconds per inference that a window must be able to save to be looked at.
    """

    lists: AttemptLists
    policy: ChainPolicy
    options: RegionalOptions
    seconds_of: Callable[[SiteClass], float]
    worth: float

    def propose(self, first: Sequence[Attempt], until: Callable[[], bool]) -> tuple[list[Attempt], list[Attempt]]:
        """Return the proposed chains, each as the attempt of its last step, and the first steps that are not proposed
        by themselves, with what is predicted of them.

        Args:
            first: the first steps of all windows.
            until: says that time is up: the windows that take most of the model's time are looked at first.
        """
        proposals: list[Attempt] = []
        others: list[Attempt] = []
        for same in sorted(_by_window(first), key=lambda steps: -max(map(self._weight, steps))):
            matters = self.options.most_saved * max(map(self._weight, same)) >= self.worth
            opinion = None if until() or not matters else self._opinion(same)
            if opinion is None:
                others += same
                continue
            chosen = opinion.likeliest(self.options.proposed, self.options.likely)
            for number, step in enumerate(same):
                attempt = _predicted(step, opinion, number)
                chain = self._rolled_out(attempt, opinion, number, until) if number in chosen else None
                if chain is not None:
                    proposals.append(chain)
                if chain is not attempt:
                    others.append(attempt)
        return proposals, others

    def _weight(self, attempt: Attempt) -> float:
        """Return the seconds per inference that all windows like that of an attempt take."""
        return self.seconds_of(attempt.state.site_class)

    def _opinion(self, same: Sequence[Attempt]) -> Opinion | None:
        window = same[0].state.graph  # the others' is the same, node by node
        return self.policy.opinion([candidate_of(window, step.sites) for step in same], 0)

    def _rolled_out(self, attempt: Attempt, opinion: Opinion, number: int, until: Callable[[], bool]) -> Attempt:
        """Return the last step of the chain that begins with a step and goes on with the likeliest ones."""
        while not until():
            share = max(attempt.state.share, -2.0) + (opinion.saving(number, attempt.state.share) or 0.0)
            seconds = share * self._weight(attempt)
            state = reached(attempt, share, seconds, self.lists.chain_of(attempt))
            if not state.may_go_on(self.options):
                break
            groups = self.lists.groups(state, attempt.state.graph)
            steps = [candidate_of(state.graph, sites) for sites in groups]
            found = self.policy.opinion(steps, len(state.steps)) if steps else None
            if found is None or found.choice is None:
                break
            following = self.lists.steps(state, [groups[found.choice]], until)
            if not following:
                break
            opinion, number = found, found.choice
            attempt = _predicted(following[0], opinion, number)
        return attempt


def _predicted(attempt: Attempt, opinion: Opinion, number: int) -> Attempt:
    """Return a step with what is predicted of it: the share that the whole chain saves, less what the steps before it
    save. A loss of these counts, as the chain is timed as a whole."""
    before = attempt.state.share
    saving = opinion.saving(number, before, HOPE)
    return attempt if saving is None else replace(attempt, predicted=saving + min(max(before, -2.0), 0.0))


def _by_window(first: Sequence[Attempt]) -> list[list[Attempt]]:
    """Return first steps in groups that have the same window."""
    found: dict[frozenset[int], list[Attempt]] = {}
    for attempt in first:
        found.setdefault(frozenset(attempt.state.graph.nodes), []).append(attempt)
    return list(found.values())
