"""Rules that take in a whole part of a model, such as its convolutions in another layout: tried end to end."""

from __future__ import annotations

from dataclasses import dataclass, field

from agents.conclusion.last_look import lacks_time, propose
from agents.core.base import SMALL_LEAD, Action, Search, Visit
from agents.regional.assembly import AssembledGraph
from agents.regional.joint_rewrites import tidy
from agents.regional.sites import RewriteStep, apply_step
from graph_rewrite.ir.graph import Graph


@dataclass(slots=True)
class Finishing:
    """Finishes what a search by windows puts together, by the rules that cover parts of a model. Where windows are cut
    out, a finished part shows little that other rules match: rounds go on from unfinished graphs until one gains
    nothing, and then from the best graph.

    Args:
        search: its applications and measurements are spent.
        most_sites: applications of a rule in a graph, at most.
    """

    search: Search
    most_sites: int
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

    def finish(self, visit: Visit | None) -> None:
        """Apply the rules to a graph at all their sites, take out what cancels behind them, and measure the graph that
        this gives. Nothing is done where they match nowhere, or no measurement is left."""
        search = self.search
        if visit is None or not visit.latency.ok or visit.graph.hash in self._finished or not search.can_measure:
            return
        graph, actions = self.applied(visit.graph, visit.actions)
        self._finished[visit.graph.hash] = graph.hash
        search.measure(graph, actions)

    def is_left_to_the_end(self, draft: AssembledGraph, seconds: float) -> bool:
        """Return whether a draft is left to the conclusion to measure, as no time is left to measure it and to conclude
        as usual. One that is forecast to gain much, with convolutions of fewer multiplications, is finished for that;
        and it is left to the conclusion too where no time is left to measure it both ways.

        Args:
            seconds: estimated, of a run of the original.
        """
        graph, actions = draft.graph, draft.actions
        gain = sum(chain.saved for chain in draft.chains) / seconds
        gains_much = gain >= SMALL_LEAD
        if not lacks_time(self.search, graph, gain, 2 if gains_much else 1):
            return False
        if gains_much:
            graph, actions = self.applied(graph, actions)
            if graph is draft.graph and not lacks_time(self.search, graph, gain):
                return False
        propose(self.search, graph, actions, gain)
        return True

    def applied(self, start: Graph, actions: tuple[Action, ...]) -> tuple[Graph, tuple[Action, ...]]:
        """Return the graph that the rules give at all their sites, less what cancels behind them, and the actions that
        lead there; the same graph where they match nowhere."""
        search, graph, since = self.search, start, start.next_id
        for rule in search.problem.rewriter.rules:
            if rule.covers_parts:
                step = RewriteStep("", rule.name, rule.family)
                applied = apply_step(search, graph, step, frozenset(graph.nodes), self.most_sites)
                if applied is not None:
                    graph, actions = applied[0], (*actions, *applied[1])
        if graph is not start:
            graph, actions = tidy(search, graph, actions, since, self.most_sites)
        return graph, actions

    def goes_on_from_finished(self) -> bool:
        """Let later rounds begin with the best graph. Return whether that makes a difference."""
        before = self.start
        self._goes_on = False
        return before is not self.start
