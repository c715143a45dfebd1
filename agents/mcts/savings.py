"""A guide of a tree search by what steps save in the windows of other models."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from agents.core.base import Search
from agents.mcts.promises import joint_saving, priors_of
from agents.mcts.states import Chain, EnvState
from agents.regional.attempts import Attempt, AttemptLists, WindowState
from agents.regional.gains import Effects
from agents.regional.options import DEFAULTS
from agents.regional.prior import Prior
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.site_windows import apart, class_of_sites


@dataclass(frozen=True, slots=True)
class _Promise:
    """Promise of a rewrite at one site, in seconds of the roofline's estimate."""

    hoped: float
    expected: float


class SavingsGuide:
    """A prior of the search by windows (`agents.regional.prior`): rewrites are likely in proportion to what they
    promise to save at all their sites.

    A rewrite is looked up in the window around its site, as the search by windows does, once for each class of sites
    and chain of rules before it. Deployment choices, of which a prior says nothing, count as the mean of the others.

    Args:
        prior: says what steps save.
        search: charged for the rewrites in windows.
        critic: say that what rewrites promise together that do not overlap is still to be gained, else nothing.
    """

    def __init__(self, prior: Prior, search: Search, critic: bool = False) -> None:
        self._lists, self._search, self._critic = AttemptLists(search, None, prior), search, critic
        self._known: dict[tuple[str, tuple[str, ...]], _Promise | None] = {}

    def priors(self, state: EnvState, rng: np.random.Generator) -> dict[int, float]:
        whole = estimated_seconds(state.env.graph)
        promises = {
            action: None if found is None else candidate.count * found.hoped / whole
            for action, candidate, found in self._promises(state)
        }
        return priors_of(promises, DEFAULTS.worth)

    def gain(self, state: EnvState, speedup: float) -> float:
        if not self._critic:
            return 0.0
        whole = estimated_seconds(state.env.graph)
        savings = [
            (len(apart(candidate.sites)) * found.expected / whole, _removed(candidate))
            for _, candidate, found in self._promises(state)
            if found is not None
        ]
        return joint_saving(savings) / speedup

    def _promises(self, state: EnvState) -> Iterator[tuple[int, Candidate, _Promise | None]]:
        """Yield the legal actions without the No-Op, with their candidates and what these promise."""
        for action in np.flatnonzero(state.env.action_masks()[:-1]).tolist():
            candidate = state.env.candidates[action]
            yield action, candidate, self._promise(state, candidate)

    def _promise(self, state: EnvState, candidate: Candidate) -> _Promise | None:
        if not candidate.sites:
            return None
        chain = state.chain_at(candidate)
        key = (candidate.site.class_key, tuple(step.rule for step in chain))
        if key not in self._known:
            self._known[key] = self._looked_up(state.env.graph, candidate, chain)
        return self._known[key]

    def _looked_up(self, graph: Graph, candidate: Candidate, chain: Chain) -> _Promise | None:
        """Return what a candidate promises to save at each of its sites, in seconds of the estimate."""
        site_class = class_of_sites(graph, candidate.sites, DEFAULTS.margin, DEFAULTS.compared_sites)
        if site_class is None:
            return None
        state = WindowState(site_class, site_class.window, chain)
        found = self._lists.steps(state, [site_class.sites[:1]], lambda: not self._search.can_apply)
        if not found:
            return None
        (attempt,) = self._lists.predicted(found)
        hoped = attempt.move.promise(Effects(), DEFAULTS, DEFAULTS.hopeful[0], False)
        return _Promise(site_class.seconds * hoped, site_class.seconds * _expected(attempt))


def _removed(candidate: Candidate) -> set[int]:
    return {node.id for site in candidate.sites for node in site.removed}


def _expected(attempt: Attempt) -> float:
    """Return the share of its window's time that a step is predicted to save; 0 where nothing is."""
    if attempt.forecast is not None:
        return attempt.forecast.mean
    return attempt.predicted or 0.0
