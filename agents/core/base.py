"""The interface of every agent: a problem and a budget go in, a result comes out."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from agents.core.budget import KEPT_SHARE, Budget
from agents.core.records import Action, Growth, Improvement, ProposedGraph, Trials, Visit, action_of
from agents.core.result import OptimizationResult
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, unblocked_time, waited_seconds
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.system.deadline import Limit, OutOfTime, check_time, ending_at
from graph_rewrite.task.limits import priced
from graph_rewrite.task.problem import Problem

__all__ = ["Action", "Agent", "Budget", "OptimizationResult", "Search", "Visit", "action_of"]


SMALL_LEAD = 0.1
"""Screened gain below which it takes many sessions to tell a lead from none."""
FULL_COMPARISON_RUNS = 64.0
"""Runs of a graph that comparing it with another one with full effort takes at least, with the sessions of both."""


@dataclass(slots=True)
class Search:
    """Bookkeeping shared by all agents: spends the budget, keeps what was measured and the best so far."""

    problem: Problem
    budget: Budget
    progress: Callable[[Search], None] | None = None
    visits: dict[str, Visit] = field(default_factory=dict)
    improvements: list[Improvement] = field(default_factory=list)
    """Every new best, in order."""
    applications: int = 0
    """Candidates applied so far; only `count_applications` adds to it."""
    growth: list[Growth] = field(default_factory=list)
    """The construction of an e-graph, rule by rule."""
    trials: Trials = field(default_factory=Trials)
    """Measurements of candidates and windows, and those that failed."""
    proposed: ProposedGraph | None = None
    """What is left to the conclusion to measure, where there is no time to measure it here and check it there."""
    _start: float = field(default_factory=unblocked_time)
    _charged: float = 0.0
    _paid: set[Hashable] = field(default_factory=set)
    """What `charge` was told of."""
    _excluded: float = 0.0
    ended: bool = False
    """Whether `end` was called."""
    cut_off: bool = False
    """Whether the time ran out in the middle of something."""
    original_s: float = 0.0
    """Seconds of a run of the original, as the first measurement found; 0 before that."""
    _prices: dict[str, float] = field(default_factory=dict)
    _faults_before: Counter[str] = field(default_factory=Counter)
    _limit: Limit | None = None

    def __post_init__(self) -> None:
        self._faults_before = self.problem.rule_faults.counts.copy()

    @property
    def measurements(self) -> int:
        return len(self.visits)

    @property
    def elapsed(self) -> float:
        """Seconds since the search began, as if every measurement had been taken for this search alone, and no other
        process of this machine had measured anything."""
        return unblocked_time() - self._start + self._charged

    @property
    def excluded(self) -> float:
        """Seconds that were left out of `elapsed`, such as those of pricing operators."""
        return self._excluded

    @property
    def seconds(self) -> float:
        """The part of the budget's seconds that is spent: `elapsed`, or all of them once the search is ended."""
        return max(self.elapsed, self.budget.seconds) if self.ended else self.elapsed

    @property
    def allowed(self) -> float:
        """The seconds that the search may take: those of the budget, less what the conclusion lacks, and less what
        telling a small lead from none needs."""
        lead = self.improvements[-1].speedup - 1.0 if self.improvements else 0.0
        is_small = 0.0 < lead < SMALL_LEAD
        seconds = self.budget.seconds - self.lacking
        return seconds - self.budget.telling_s if is_small else seconds

    @property
    def lacking(self) -> float:
        """The seconds that the conclusion needs on a model this slow, beyond those that the budget has for it."""
        return self.budget.lacking(self.original_s)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Search inside: where the time runs out, what is under way is broken off and the search has ended."""
        try:
            with self._limited() as self._limit:
                yield
        except OutOfTime:
            self.cut_off = True
            self.end()
        finally:
            self._limit = None

    def _limited(self) -> AbstractContextManager[Limit]:
        budget = self.budget
        if budget.deadline is not None or budget.overtime_s is None:
            return ending_at(budget.search_deadline)
        spent = budget.seconds + (1.0 - KEPT_SHARE) * budget.overtime_s
        return ending_at(time.monotonic() + spent, lambda: waited_seconds() + self._excluded)

    def end(self) -> None:
        """End the search as if its seconds were spent: the agent concludes with what was found so far."""
        self.ended = True

    def break_off(self) -> None:
        """End the search without waiting for what is under way. May be called by a signal handler."""
        self.end()
        if self._limit is not None:
            self._limit.bring_forward(0.0)

    def after(self, share: float) -> float:
        """Return the value of `seconds` once this share of the seconds left in the budget is spent."""
        return self.seconds + share * (self.allowed - self.seconds)

    @property
    def can_measure(self) -> bool:
        """True while the budget has a measurement and time left."""
        return self.measurements < self.budget.measurements and self.seconds < self.allowed

    @property
    def can_apply(self) -> bool:
        """True while the budget has an application and time left."""
        limit = self.budget.applications
        return (limit is None or self.applications < limit) and self.seconds < self.allowed

    @property
    def exhausted(self) -> bool:
        return not (self.can_measure and self.can_apply)

    @property
    def trajectory(self) -> list[tuple[float, int, float]]:
        """(seconds, measurements, best speed-up by screening) at every improvement."""
        return [(point.seconds, point.measurements, point.speedup) for point in self.improvements]

    @property
    def rule_faults(self) -> RuleFaults:
        """The exceptions that rules raised since the search began. One on a graph whose candidates an earlier search
        has listed is counted there."""
        faults = self.problem.rule_faults
        faults.counts = faults.counts - self._faults_before
        faults.tracebacks = {rule: faults.tracebacks[rule] for rule in faults.counts}
        return faults

    def charge(self, measured: Hashable, cost_s: float, spent_s: float) -> None:
        """Count what a measurement took, where it is answered from what another search measured: no agent gains by
        coming later. What this search paid for already costs it nothing more, and with a deadline real time alone
        counts.

        Args:
            measured: tells this measurement from others.
            cost_s: seconds that it took when it was taken.
            spent_s: seconds that this search just spent on it.
        """
        if self.budget.deadline is None and measured not in self._paid:
            self._paid.add(measured)
            self._charged += max(0.0, cost_s - spent_s)

    def exclude(self, seconds: float) -> None:
        """Leave out seconds that no search has to pay for, such as those of pricing an operator."""
        self._charged -= max(0.0, seconds)
        self._excluded += max(0.0, seconds)

    def count_applications(self, count: int = 1) -> None:
        """Count candidates as applied: `apply` does, and agents that apply them by other means say so.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        check_time()
        self.applications += count

    def apply(self, candidate: Candidate, applied: Callable[[Site, range], None] | None = None) -> Graph | None:
        """Return the graph that a candidate leads to, counted as an application; None where it gives no valid graph.

        Args:
            applied: as for `Candidate.apply`.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        self.count_applications()
        try:
            return candidate.apply(applied)
        except InvalidRewriteError:
            return None

    @property
    def best(self) -> Visit | None:
        """The visit that is worth most by its screened latency; None before the first measurement."""
        return max(self.visits.values(), key=lambda visit: self.worth(visit.graph, visit.latency), default=None)

    def price(self, graph: Graph) -> float:
        """Return the share of the original's latency that a graph must save for the weights that it adds."""
        known = self._prices.get(graph.hash)
        if known is None:
            known = self._prices[graph.hash] = self.problem.limits.price(self.problem.model.original, graph)
        return known

    def worth(self, graph: Graph, latency: Latency) -> float:
        """Return the lower bound of a speed-up with the price of added weights put on the latency."""
        return priced(latency.lower_bound, self.price(graph))

    def is_worth_more(self, visit: Visit, other: Visit, ratio: float, gain: float = 0.0) -> bool:
        """Return whether a graph is better than another by the share `gain`, where it is `ratio` times as fast, with
        the price of the weights that either adds."""
        prices = self.price(visit.graph), self.price(other.graph)
        if prices == (0.0, 0.0):
            return ratio > 1.0 + gain
        speedup = other.latency.speedup
        return priced(speedup * ratio, prices[0]) > priced(speedup, prices[1]) * (1.0 + gain)

    def measure(self, graph: Graph, actions: tuple[Action, ...], latency: Latency | None = None) -> Latency:
        """Return the screened latency of a graph; one that is given was measured already. Only graphs that were not
        screened before count as measurements.

        Raises:
            OutOfTime: the time limit of the run is reached; nothing is recorded then.
        """
        known = self.visits.get(graph.hash)
        if known is not None:
            return known.latency
        begin = unblocked_time()
        latency = latency or self.problem.measure(graph, "screen")
        self.charge(graph.hash, self.problem.cost(graph), unblocked_time() - begin)
        best = self.improvements[-1].speedup if self.improvements else 0.0
        self.visits[graph.hash] = Visit(graph, latency, actions)
        if actions and (latency.ok or not self.problem.violation(graph)):
            self.trials.add(None if latency.ok else f"{latency.status}: {latency.message}")
        if latency.ok and not self.original_s:
            self.original_s = latency.baseline_ms / 1e3
            if self._limit is not None and self.lacking:
                self._limit.bring_forward(self._limit.own_end - time.monotonic() - self.lacking)
        if latency.ok and latency.speedup > best:
            self.improvements.append(
                Improvement(self.elapsed, self.measurements, self.applications, latency.speedup, latency.ms)
            )
        self.tell()
        return latency

    def beats(self, visit: Visit, other: Visit, gain: float = 0.0) -> bool:
        """Return whether a visited graph is faster than another by the share `gain`, when both are timed in turn and
        added weights have their price.

        Of many graphs measured one by one against the original, the fastest was often lucky; those measurements only
        decide which graphs are compared. Where the meter cannot compare two graphs, or the search has no time left for
        it, the lower bounds decide.
        """
        mine, its = visit.latency, other.latency
        surely = self.worth(visit.graph, mine) > self.worth(other.graph, its) * (1.0 + gain)
        if not mine.ok or not (surely or self.is_worth_more(visit, other, mine.speedup / its.speedup, gain)):
            return False
        if self.seconds + FULL_COMPARISON_RUNS * mine.ms / 1e3 > self.allowed:
            return surely
        begin = unblocked_time()
        compared = self.problem.compare(other.graph, visit.graph)
        if compared is None:
            return surely
        self.charge((other.graph.hash, visit.graph.hash), compared[1], unblocked_time() - begin)
        self.tell()
        return self.is_worth_more(visit, other, compared[0].speedup, gain)

    def tell(self) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(self)


class Agent(Protocol):
    """A search method. `seed` makes it reproducible up to the noise of the measurements."""

    name: str

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget, then validate; never returns a model that is slower than the original or wrong."""
        ...
