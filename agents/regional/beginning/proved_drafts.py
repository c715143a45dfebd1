"""Drafts whose doubtful chains were timed, from a model and again from what that gave."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import takewhile

from agents.conclusion.stopping import lead_needs_time
from agents.core.base import Search, Visit
from agents.core.records import supposed
from agents.regional.assembly import AssembledGraph, best_of
from agents.regional.beginning.beliefs import Beliefs, Key, key_of
from agents.regional.chains import RewriteChain, Timer, time_cut
from agents.regional.experience import LoggedRound, Note
from agents.regional.gains import Effects
from agents.regional.judgement import visit_of, within_bounds
from agents.regional.options import RegionalOptions
from agents.regional.prior import Prior
from agents.regional.screen import Screen
from graph_rewrite.experience.log import ExperienceLog
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.trial import timed_part, trial_pair
from graph_rewrite.task.site_windows import SiteClass, site_classes

DOUBTFUL = 0.06
"""Part of its windows' time that a chain must be forecast to save to be taken without a timing. Forecasts err by 0.02
to 0.05: of 71 chains drafted for 12 models on a Xeon, 4 saved nothing when timed, all of them forecast to save less."""
AGAIN_S = (0.5, 2.0)
"""Fewest and most seconds in which a chain is timed once more. On a ViT two seconds tell 0.7% of the model's latency,
where a scan tells 3.4%."""


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

    def measure_further(self) -> None:
        """Draft from the best graph so far, measure what that gives, and log what was timed."""
        best = self.search.best
        drafted = None if best is None or lead_needs_time(self.search) else self.draft(best)
        if drafted is not None and self.search.can_measure:
            visit_of(self.search, drafted)
        self.tell()

    def tell(self) -> None:
        """Log what was timed, where it is known by now how long the original takes."""
        for round_, note, timed in self._timed if self.search.original_s else []:
            round_.model_s = self.search.original_s
            note(timed)
        self._timed.clear()

    def _assembly(
        self, start: Visit, found: Iterable[SiteClass], doubtful: float, until: Callable[[], bool]
    ) -> AssembledGraph | None:
        """Return the assembly of the chains that are believed to save most together. Of these are timed, until time is
        up, those that are forecast to save less than `doubtful` of their windows' time, and those of `wary` nodes:
        those first that are to save least there. Where a chain saves less than forecast, another may take its place.
        Those that may still save nothing are timed longer with what is left of the time."""
        search, options = self.search, self.options
        logged, seconds = LoggedRound(self.log, search, start) if self.log.is_on else None, start.latency.ms / 1e3
        screen = Screen(search, self.timer, Effects(), start.graph, seconds, options, logged, self.prior)
        beliefs = Beliefs(screen.forecast(found, until), screen.scale, options.worth * seconds)
        chains, again, last = best_of(beliefs.forecast), set[Key](), search.after(options.doubting_share)
        while (left := last - search.seconds) > 0.0:
            open_ones = [one for one in chains if not beliefs.is_timed(one)]
            doubted = [one for one in open_ones if beliefs.share(one) < doubtful or one.nodes & self.wary]
            timed = [one for one in chains if beliefs.is_timed(one) and key_of(one) not in again]
            unsure = [one for one in timed if beliefs.error(one) > options.matters * seconds]
            if doubted:
                chain, anew_s = min(doubted, key=beliefs.share), None
            elif unsure and left / len(unsure) >= AGAIN_S[0]:
                chain, anew_s = max(unsure, key=beliefs.error), min(left / len(unsure), AGAIN_S[1])
                again.add(key_of(chain))
            else:
                break
            beliefs.tell(chain, *self._time(chain, logged, anew_s))
            chains = best_of(beliefs.chains())
        return within_bounds(search, start, chains, options) if chains else None

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

    def _time(
        self, chain: RewriteChain, logged: LoggedRound | None, anew_s: float | None = None
    ) -> tuple[Difference | None, float]:
        """Time a drafted chain in its window, with `anew_s` so many seconds whatever is known, and note the timing
        where it is logged. Return it, None where there is none, and the part of the window that was timed."""
        window, pair = chain.cut.before, trial_pair(chain.cut.before, chain.cut.after, len(chain.sites))
        timed = time_cut(self.search, self.timer, pair, anew_s)
        if logged is not None:
            note = chain.logged.noting("scan" if anew_s is None else "anew", self.options.scan)
            self._timed.append((logged, note, timed))
        return timed, timed_part(window, pair.before)


def classes_of(search: Search, graph: Graph, options: RegionalOptions) -> Iterator[SiteClass]:
    """Return the classes of sites of a graph, with their windows."""
    return site_classes(search.problem.rewriter, graph, options.margin, options.compared_sites)
