"""Drafts whose doubtful chains were timed, from a model and again from what that gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from agents.core.base import Search, Visit
from agents.core.records import supposed
from agents.regional.assembly import AssembledGraph
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.gains import Effects
from agents.regional.judgement import within_bounds
from agents.regional.options import RegionalOptions
from agents.regional.prior import Prior
from agents.regional.screen import Screen
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import trial_pair
from graph_rewrite.task.site_windows import SiteClass, site_classes

DOUBTFUL = 0.06
"""Part of its windows' time that a chain must be forecast to save to be taken without a timing. Forecasts err by 0.02
to 0.05: of 71 chains drafted for 14 models, all that cost time in their windows were forecast to save less."""


@dataclass(frozen=True, slots=True)
class ProvedDrafts:
    """Puts drafts together. The doubtful chains are timed in their windows first, which takes less than to measure a
    graph that one of them makes slower.

    Args:
        search: its applications and seconds are spent.
        timer: times windows.
        prior: forecasts what steps save.
        options: settings of the search.
    """

    search: Search
    timer: Timer
    prior: Prior | None
    options: RegionalOptions

    def draft(self, start: Visit) -> AssembledGraph | None:
        """Draft from a graph, and again from what that gives: chains bring in what other rules match, and those that
        save more keep others away from their nodes. Parts of the model are left to the finishing then. Return the
        graph, with the chains of the first draft only, whose nodes are those of the graph that it began with; None
        where nothing is forecast to save."""
        first = self._assembly(start, self._classes(start.graph), DOUBTFUL, lambda: False)
        if first is None:
            return None
        last = self.search.after(self.options.drafting_share)
        classes = takewhile(lambda _: self.search.seconds < last, self._classes(first.graph))
        parts_left_out = (one for one in classes if not one.sites[0].rule.covers_parts)
        start = supposed(first.graph, start.latency.ms, first.actions)
        again = self._assembly(start, parts_left_out, math.inf, lambda: self.search.seconds >= last)
        return first if again is None else replace(again, chains=first.chains)

    def _classes(self, graph: Graph) -> Iterator[SiteClass]:
        return site_classes(self.search.problem.rewriter, graph, self.options.margin, self.options.compared_sites)

    def _assembly(
        self, start: Visit, found: Iterable[SiteClass], doubtful: float, until: Callable[[], bool]
    ) -> AssembledGraph | None:
        """Return the assembly of the chains that are forecast to save. Those that are forecast to save less than
        `doubtful` of their windows' time are timed, and left out where they save nothing."""
        search, options = self.search, self.options
        screen = Screen(search, self.timer, Effects(), start.graph, start.latency.ms / 1e3, options, None, self.prior)
        chains = self._without_losses(screen.draft(found, until), screen.scale, doubtful)
        return within_bounds(search, start, chains, options) if chains else None

    def _without_losses(self, chains: Sequence[RewriteChain], scale: float, doubtful: float) -> list[RewriteChain]:
        """Time the doubtful chains in their windows, those first that are forecast to save least there, until time is
        up. Return the chains without those that save nothing or cannot be timed."""
        search, lost = self.search, set[int]()
        last = search.after(self.options.doubting_share)
        shares = {id(chain): _share(chain, scale) for chain in chains}
        for chain in sorted(chains, key=lambda chain: shares[id(chain)]):
            if search.seconds >= last or shares[id(chain)] >= doubtful:
                break
            cut = trial_pair(chain.cut.before, chain.cut.after, len(chain.sites))
            timed = time_cut(search, self.timer, cut)
            if timed is None or timed.seconds <= 0.0:
                lost.add(id(chain))
        return [chain for chain in chains if id(chain) not in lost]


def _share(chain: RewriteChain, scale: float) -> float:
    """Return the share of its windows' time that a chain is forecast to save."""
    window = chain.cut.before
    return chain.saved / (len(chain.sites) * scale * max(estimated_seconds(window, window.nodes), 1e-12))
