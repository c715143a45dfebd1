"""Rules that take in a whole part of a model, such as its convolutions in another layout: tried end to end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from agents.conclusion.finalists import COMPARING_RUNS, compare_in_turn
from agents.conclusion.last_look import lacks_time, propose
from agents.core.base import SMALL_LEAD, Action, Search, Visit
from agents.core.records import is_supposed, supposed
from agents.regional.assembly import AssembledGraph, assemble
from agents.regional.chains import CERTAIN, RewriteChain, Timer, time_cuts
from agents.regional.drafting import NO_DRAFT, MeasuredDraft
from agents.regional.joint_rewrites import continue_with, tidy
from agents.regional.judgement import fastest_of, visit_of, within_bounds
from agents.regional.options import RegionalOptions
from agents.regional.sites import RewriteStep, apply_step
from agents.searching.known_starts import visit_own
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import ComparingMeter
from graph_rewrite.latency.windows import NotSeparable, changed_windows
from graph_rewrite.latency.windows.roofline import estimated_seconds
from graph_rewrite.latency.windows.trial import synthetic_pair

CLEAR_LEAD = 0.02
"""Lead of the finished original over every other graph, in lower bounds, from which on rounds go on from it."""

COMPARING_SHARE = 0.2
"""Part of the search's time left that comparing the finished original with the best graph may take."""

SMALL_STEP = 0.05
"""Lead of a finished graph over the one it was made from that a measurement of each against the original does not tell
from none. On one thread of a Xeon, finishing loses 0.5% to 2.2% of three transformers, whose feed-forward networks are
convolutions by then, and saves 1.4% to 2.9% of ResNet-50 and Inception-v3."""

KEPT_PROMISE = 0.5
"""Part of the gain that is forecast of a draft below which one of its chains is taken to cost what others save."""

PART_SHARE = 0.5
"""Part of the search's time left that finding and measuring a part of a draft may take. It takes about as long as
finishing and measuring the draft: 6 s for DenseNet-121 on a Zen 3."""


ASKED_SHARE = 0.2
"""Part of a model's estimated time that the kinds of its finished parts may take, one of each, for windows to be asked
whether they pay. The feed-forward networks of a transformer are alike; a convolutional network is one part."""


@dataclass(slots=True)
class Finishing:
    """Finishes what a search by windows puts together, by the rules that cover parts of a model. Where windows are cut
    out, a finished part shows little that other rules match: rounds go on from unfinished graphs until one gains
    nothing, and then from the best graph.

    Args:
        search: its applications and measurements are spent.
        most_sites: applications of a rule in a graph, at most.
        original: the graph that the search begins with; by default the problem's own.
        timer: times parts that are alike. A graph for which they do not surely pay is not measured finished.
    """

    search: Search
    most_sites: int
    original: Graph | None = None
    timer: Timer | None = None
    seconds: float = 0.0
    """Seconds that finishing a graph took the last time, with its measurement."""
    _finished: dict[str, str] = field(default_factory=dict)
    """Hashes of the graphs that were made here, by those of the graphs that they were made from."""
    _goes_on: bool = True

    @property
    def start(self) -> Visit | None:
        """The graph that the next round begins with."""
        if not self._goes_on:
            return self.search.best
        made = set(self._finished.values()) - self._finished.keys()
        open_visits = (visit for key, visit in self.search.visits.items() if key not in made)
        return max(open_visits, key=lambda visit: self.search.worth(visit.graph, visit.latency), default=None)

    def finish(self, visit: Visit | None) -> Visit | None:
        """Apply the rules to a graph at all their sites, take out what cancels behind them, and measure the graph that
        this gives; the same graph where they match nowhere. Return None where nothing is done: the graph was finished
        before, cannot be run, its parts are not proved to pay, or no measurement is left."""
        search = self.search
        if visit is None or not visit.latency.ok or visit.graph.hash in self._finished or not search.can_measure:
            return None
        began = search.seconds
        graph, actions = self.applied(visit.graph, visit.actions)
        self._finished[visit.graph.hash] = graph.hash
        if self._is_unproved(visit.graph, graph):
            return None
        made = Visit(graph, search.measure(graph, actions), actions)
        self.seconds = search.seconds - began
        return self._doubted(made, visit)

    def measured_part(
        self, start: Visit, assembly: AssembledGraph, draft: MeasuredDraft, options: RegionalOptions
    ) -> MeasuredDraft:
        """Measure those chains of a draft, finished, that do not keep the finishing out of parts of the model which it
        takes in without them, if that takes little of the time left. Return the better draft.

        Args:
            start: the graph that the draft was made from.
            assembly: the draft.
            draft: its measurement.
            options: settings of the search.
        """
        search = self.search
        if self.seconds > PART_SHARE * (search.allowed - search.seconds):
            return draft
        fitting, found = self.fitting(start, assembly.chains, options), fastest_of(search)
        if not fitting or len(fitting) == len(assembly.chains):
            return draft
        part = within_bounds(search, start, fitting, options)
        made = self.finish(supposed(part.graph, start.latency.ms, part.actions))
        if made is None or made.latency.speedup <= found:
            return draft
        scale = made.latency.baseline_ms / start.latency.ms
        return MeasuredDraft([chain.scaled(scale) for chain in part.chains], False)

    def fitting(self, start: Visit, chains: Sequence[RewriteChain], options: RegionalOptions) -> list[RewriteChain]:
        """Return the chains that leave the finishing of a graph as much of it as it takes without them, those of the
        same rules together; none where it takes less than half of the nodes, or where a chain is a part of the
        finishing itself.

        Args:
            start: the graph that the chains are applied to.
            chains: the chains.
            options: settings of the search.
        """
        covering = {rule.name for rule in self.search.problem.rewriter.rules if rule.covers_parts}
        if any(step.rule in covering for chain in chains for step in chain.steps):
            return []
        left = self._left_out(start.graph)
        if 2 * left > len(start.graph.nodes):
            return []
        alike: dict[str, list[RewriteChain]] = {}
        for chain in chains:
            alike.setdefault(str(chain), []).append(chain)
        graphs = {rules: assemble(self.search, start.graph, (), some, options).graph for rules, some in alike.items()}
        return [chain for rules, graph in graphs.items() if self._left_out(graph) <= left for chain in alike[rules]]

    def _left_out(self, graph: Graph) -> int:
        """Return how many nodes of a graph its finishing leaves as they are."""
        return len(graph.nodes.keys() & self.applied(graph, ())[0].nodes.keys())

    def _is_unproved(self, before: Graph, finished: Graph) -> bool:
        """Return whether the parts that finishing takes in are small and alike, and do not certainly save by
        their windows: those of transformers cost more often than they save. Others are measured end to end."""
        if self.timer is None or before is finished:
            return False
        try:
            found = changed_windows(before, finished)
        except NotSeparable:
            return False
        if sum(estimated_seconds(pair.before) for pair in found) > ASKED_SHARE * estimated_seconds(before):
            return False
        pairs = (synthetic_pair(pair.before, pair.after, pair.count) for pair in found)
        saved, half = time_cuts(self.search, self.timer, pairs)
        return math.isfinite(half) and saved <= CERTAIN * half

    def _doubted(self, made: Visit, visit: Visit) -> Visit:
        """Compare a finished graph in turn with the one it was made from, where it seems to have a small lead. Without
        the time for that, it is worth no more than the other one: operators that pay nothing are left out."""
        search = self.search
        if made.graph.hash == visit.graph.hash or is_supposed(visit) or not (made.latency.ok and visit.latency.ok):
            return made
        lead = made.latency.speedup / visit.latency.speedup
        seems_better = lead > 1.0 or search.worth(made.graph, made.latency) > search.worth(visit.graph, visit.latency)
        if not seems_better or lead >= 1.0 + SMALL_STEP or not isinstance(search.problem.meter, ComparingMeter):
            return made
        if search.seconds + COMPARING_RUNS * visit.latency.ms / 1e3 < search.allowed:
            compare_in_turn(search, visit, made)
        else:
            low, high = made.latency.ci95
            latency = replace(made.latency, ci95=(min(low, visit.latency.ci95[0]), high))
            search.visits[made.graph.hash] = replace(made, latency=latency)
        return search.visits[made.graph.hash]

    def original_leads(self) -> bool:
        """Finish the original too, where no graph has a large lead. Return whether that is clearly the best graph, or
        faster than the best one in turn: rounds go on from it then, since chains that were found without it keep parts
        of the model out of it."""
        search = self.search
        graph = self.original or search.problem.model.graph
        best, original = search.best, search.visits.get(graph.hash)
        if best is None or original is None or best.latency.speedup >= 1.0 + SMALL_LEAD:
            return False
        made, lead = self.finish(original), CLEAR_LEAD
        if made is None:
            return False
        if self._may_lead(made, best):
            compare_in_turn(search, best, made)
            compared = search.visits[made.graph.hash]
            if compared.latency is not made.latency:
                best, made, lead = search.visits[best.graph.hash], compared, 0.0
        if search.worth(made.graph, made.latency) <= search.worth(best.graph, best.latency) + lead:
            return False
        self._goes_on = False
        return True

    def _may_lead(self, made: Visit, best: Visit) -> bool:
        """Return whether a graph may be as fast as the best one, that is not clear yet, and there is time to compare
        the two."""
        search = self.search
        if not best.actions or made.graph.hash == best.graph.hash:
            return False
        lead = search.worth(made.graph, made.latency) - search.worth(best.graph, best.latency)
        is_open = made.latency.ok and lead <= CLEAR_LEAD and made.latency.ci95[1] > best.latency.speedup
        return is_open and COMPARING_RUNS * best.latency.ms / 1e3 < COMPARING_SHARE * (search.allowed - search.seconds)

    def measured_draft(self, draft: AssembledGraph, seconds: float) -> MeasuredDraft:
        """Measure a draft before any other graph, as it is and finished: the more promising one first, since there may
        be no time for the other. Where no time is left for either, it is left to the conclusion.

        Args:
            seconds: estimated, of a run of the original.
        """
        search, plain = self.search, supposed(draft.graph, 1e3 * seconds, draft.actions)
        if self.is_left_to_the_end(draft, seconds):
            return NO_DRAFT
        began, gains_much = search.seconds, gain_of(draft, seconds) >= SMALL_LEAD
        first = (self.finish(plain) if gains_much else None) or visit_of(search, draft)
        visit_own(search, first.latency)
        is_last, second = search.allowed - search.seconds < search.seconds - began, None
        if not is_last and search.can_measure:
            if gains_much:
                second = visit_of(search, draft)
                first = self._doubted(first, second)
            elif first.latency.speedup > 1.0 and keeps_promise(first, draft, seconds):
                second = self.finish(first)
        for visit in (first, second):
            if visit is not None:
                kept = search.visits[visit.graph.hash]
                search.visits[visit.graph.hash] = replace(kept, forecast=gain_of(draft, seconds))
        measured = [visit.latency for visit in (first, second) if visit is not None and visit.latency.ok]
        if not measured:
            return NO_DRAFT
        fastest = max(measured, key=lambda latency: latency.speedup)
        scale = fastest.baseline_ms / 1e3 / seconds
        return MeasuredDraft([c.scaled(scale) for c in draft.chains] if fastest.speedup > 1.0 else [], is_last)

    def is_left_to_the_end(self, draft: AssembledGraph, seconds: float) -> bool:
        """Return whether a draft is left to the conclusion to measure, as no time is left to measure it and to conclude
        as usual. One that is forecast to gain much, with convolutions of fewer multiplications, is finished for that;
        and it is left to the conclusion too where no time is left to measure it both ways.

        Args:
            seconds: estimated, of a run of the original.
        """
        graph, actions, gain = draft.graph, draft.actions, gain_of(draft, seconds)
        gains_much = gain >= SMALL_LEAD
        if not lacks_time(self.search, graph, gain, 2 if gains_much else 1):
            return False
        if gains_much:
            graph, actions = self.applied(graph, actions)
            if self._is_unproved(draft.graph, graph):
                graph, actions = draft.graph, draft.actions
            if graph is draft.graph and not lacks_time(self.search, graph, gain):
                return False
        propose(self.search, graph, actions, gain)
        return True

    def applied(self, start: Graph, actions: tuple[Action, ...]) -> tuple[Graph, tuple[Action, ...]]:
        """Return the graph that the rules give at all their sites, carried on by what the rules name and without what
        cancels behind them, and the actions that lead there; the same graph where they match nowhere."""
        search, graph, since = self.search, start, start.next_id
        for rule in search.problem.rewriter.rules:
            if rule.covers_parts:
                step = RewriteStep("", rule.name, rule.family)
                applied = apply_step(search, graph, step, frozenset(graph.nodes), self.most_sites)
                if applied is not None:
                    graph, actions = applied[0], (*actions, *applied[1])
                    graph, actions = continue_with(search, graph, actions, rule.carried_by, since, self.most_sites)
        if graph is not start:
            graph, actions = tidy(search, graph, actions, since, self.most_sites)
        return graph, actions

    def goes_on_from_finished(self) -> bool:
        """Let later rounds begin with the best graph. Return whether that makes a difference."""
        before = self.start
        self._goes_on = False
        return before is not self.start


def keeps_promise(visit: Visit, draft: AssembledGraph, seconds: float) -> bool:
    """Return whether a measured graph has a good part of what was forecast of a draft, as for `gain_of`."""
    return visit.latency.ok and visit.latency.speedup - 1.0 >= KEPT_PROMISE * gain_of(draft, seconds)


def gain_of(draft: AssembledGraph, seconds: float) -> float:
    """Return the share of a run of the original, which takes so many seconds, that a draft is forecast to save."""
    return sum(chain.saved for chain in draft.chains) / seconds
