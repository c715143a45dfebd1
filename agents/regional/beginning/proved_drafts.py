"""Drafts whose doubtful chains were timed, from a model and again from what that gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from agents.core.base import Search, Visit
from agents.core.records import supposed
from agents.effects.step_means import Z95
from agents.regional.assembly import AssembledGraph
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.experience import LoggedRound, Note
from agents.regional.gains import Effects
from agents.regional.judgement import within_bounds
from agents.regional.options import RegionalOptions
from agents.regional.prior import Prior
from agents.regional.screen import Screen
from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import saved_share, timed_part, trial_pair
from graph_rewrite.task.site_windows import SiteClass, site_classes

DOUBTFUL = 0.06
"""Part of its windows' time that a chain must be forecast to save to be taken without a timing. Forecasts err by 0.02
to 0.05: of 71 chains drafted for 12 models on a Xeon, 4 saved nothing when timed, all of them forecast to save less."""
FORECAST_ERROR = 0.05
"""Standard deviation of such a forecast, as a share of the windows' time."""


@dataclass(frozen=True, slots=True)
class ProvedDrafts:
    """Puts drafts together. The doubtful chains are timed in their windows first, which takes less than to measure a
    graph that one of them makes slower.

    Args:
        search: its applications and seconds are spent.
        timer: times windows.
        prior: forecasts what steps save.
        options: settings of the search.
        log: logs what is timed, once `tell` is called.
        wary: nodes that an optimiser would fuse if it were not refused. Chains that remove one of them are doubtful
            whatever is forecast: that was learnt from models in which they are fused.
    """

    search: Search
    timer: Timer
    prior: Prior | None
    options: RegionalOptions
    log: ExperienceLog
    wary: frozenset[int] = frozenset()
    _timed: list[tuple[LoggedRound, Note, Difference | None]] = field(default_factory=list)

    def draft(self, start: Visit) -> AssembledGraph | None:
        """Draft from a graph, and again from what that gives: chains bring in what other rules match, and those that
        save more keep others away from their nodes. Parts of the model are left to the finishing then, and all of it
        where so many nodes came in that it would take long to match rules with them. Return the graph, with the chains
        of the first draft only, whose nodes are those of the graph that it began with; None where nothing is forecast
        to save."""
        began = self.search.seconds
        self.search.problem.rewriter.sites(start.graph)
        seconds_per_node = (self.search.seconds - began) / max(len(start.graph.nodes), 1)
        first = self._assembly(start, classes_of(self.search, start.graph, self.options), DOUBTFUL, lambda: False)
        if first is None:
            return None
        last = self.search.after(self.options.drafting_share)
        brought_in = len(first.graph.nodes.keys() - start.graph.nodes.keys())
        if self.search.seconds + brought_in * seconds_per_node > last:
            return first

        def is_late() -> bool:
            return self.search.seconds >= last

        classes = takewhile(lambda _: not is_late(), classes_of(self.search, first.graph, self.options))
        parts_left_out = (one for one in classes if not one.sites[0].rule.covers_parts)
        start = supposed(first.graph, start.latency.ms, first.actions)
        again = self._assembly(start, parts_left_out, math.inf, is_late)
        return first if again is None else replace(again, chains=first.chains)

    def tell(self) -> None:
        """Log what was timed, where it is known by now how long the original takes."""
        for round_, note, timed in self._timed if self.search.original_s else []:
            round_.model_s = self.search.original_s
            note(timed)
        self._timed.clear()

    def _assembly(
        self, start: Visit, found: Iterable[SiteClass], doubtful: float, until: Callable[[], bool]
    ) -> AssembledGraph | None:
        """Return the assembly of the chains that are forecast to save. Those that are forecast to save less than
        `doubtful` of their windows' time are timed, and those of `wary` nodes, those first that are to save least
        there, until time is up; and left out where they save nothing by timing and forecast, or cannot be timed."""
        search, options = self.search, self.options
        logged, seconds = LoggedRound(self.log, search, start) if self.log.is_on else None, start.latency.ms / 1e3
        screen = Screen(search, self.timer, Effects(), start.graph, seconds, options, logged, self.prior)
        chains = screen.draft(found, until)
        shares, lost = {id(chain): _share(chain, screen.scale) for chain in chains}, set[int]()
        last = search.after(options.doubting_share)
        doubted = (chain for chain in chains if shares[id(chain)] < doubtful or chain.nodes & self.wary)
        for chain in sorted(doubted, key=lambda chain: shares[id(chain)]):
            if search.seconds >= last:
                break
            timed, part = self._time(chain, logged)
            if timed is None or not _saves(shares[id(chain)], timed, part):
                lost.add(id(chain))
        kept = [chain for chain in chains if id(chain) not in lost]
        return within_bounds(search, start, kept, options) if kept else None

    def surely_save(self, start: Visit, draft: AssembledGraph, until: Callable[[], bool]) -> list[RewriteChain]:
        """Return the chains of a draft that save with 95% confidence by timings of their windows, whatever was forecast
        of them; those that are forecast to save most are timed first, until time is up."""
        logged = LoggedRound(self.log, self.search, start) if self.log.is_on else None
        found = []
        for chain in sorted(draft.chains, key=lambda chain: -chain.saved):
            if until():
                break
            timed, _ = self._time(chain, logged)
            if timed is not None and timed.ci95[0] > 0.0:
                found.append(chain)
        return found

    def _time(self, chain: RewriteChain, logged: LoggedRound | None) -> tuple[Difference | None, float]:
        """Time a drafted chain in its window, and note the timing where it is logged. Return it, None where there is
        none, and the part of the window that was timed."""
        window, pair = chain.cut.before, trial_pair(chain.cut.before, chain.cut.after, len(chain.sites))
        timed = time_cut(self.search, self.timer, pair)
        if logged is not None:
            self._timed.append((logged, chain.logged.noting("scan", self.options.scan), timed))
        return timed, timed_part(window, pair.before)


def classes_of(search: Search, graph: Graph, options: RegionalOptions) -> Iterator[SiteClass]:
    """Return the classes of sites of a graph, with their windows."""
    return site_classes(search.problem.rewriter, graph, options.margin, options.compared_sites)


def _saves(forecast: float, timed: Difference, part: float) -> bool:
    """Return whether a chain is likely to save: by its timing, beside which the forecast counts by how sure it is.

    Args:
        forecast: share of its windows' time.
        part: the part of a window that was timed.
    """
    saved, half, _ = saved_share(timed, part)
    return saved + forecast * (half / Z95 / FORECAST_ERROR) ** 2 > 0.0


def _share(chain: RewriteChain, scale: float) -> float:
    """Return the share of its windows' time that a chain is forecast to save."""
    return chain.saved / (len(chain.sites) * scale * estimated_seconds(chain.cut.before))
