"""The interface of every agent: a problem and a budget go in, a result comes out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

from agents.core.budget import Budget
from agents.core.records import Growth, Improvement, Trials
from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, unblocked_time
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.system.deadline import OutOfTime, check_time, ending_at
from graph_rewrite.task.problem import Problem

__all__ = ["Action", "Agent", "Budget", "OptimizationResult", "Search", "Visit", "action_of"]


@dataclass(frozen=True, slots=True)
class Action:
    """An applied candidate, replayable: `key` finds it again among the candidates of the graph before it."""

    key: str
    rule: str
    description: str
    count: int
    window_s: float | None = field(default=None, compare=False)
    """Seconds per inference that it saved in windows, at all sites together; None where no window was timed."""


@dataclass(frozen=True, slots=True)
class Visit:
    """A measured graph and the actions that lead to it from the start."""

    graph: Graph
    latency: Latency
    actions: tuple[Action, ...]


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
    _start: float = field(default_factory=unblocked_time)
    _charged: float = 0.0
    ended: bool = False
    """Whether `end` was called."""
    cut_off: bool = False
    """Whether the time ran out in the middle of something."""
    _faults_before: Counter[str] = field(default_factory=Counter)

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
    def seconds(self) -> float:
        """The part of the budget's seconds that is spent: `elapsed`, or all of them once the search is ended."""
        return max(self.elapsed, self.budget.seconds) if self.ended else self.elapsed

    @contextmanager
    def running(self) -> Iterator[None]:
        """Search inside: where the time runs out, what is under way is broken off and the search has ended."""
        try:
            with ending_at(self.budget.search_deadline):
                yield
        except OutOfTime:
            self.cut_off = True
            self.end()

    def end(self) -> None:
        """End the search as if its seconds were spent: the agent concludes with what was found so far."""
        self.ended = True

    def after(self, share: float) -> float:
        """Return the value of `seconds` once this share of the seconds left in the budget is spent."""
        return self.seconds + share * (self.budget.seconds - self.seconds)

    @property
    def can_measure(self) -> bool:
        """True while the budget has a measurement and time left."""
        return self.measurements < self.budget.measurements and self.seconds < self.budget.seconds

    @property
    def can_apply(self) -> bool:
        """True while the budget has an application and time left."""
        limit = self.budget.applications
        return (limit is None or self.applications < limit) and self.seconds < self.budget.seconds

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

    def charge(self, seconds: float) -> None:
        """Count seconds that another search already spent for this one too, so that no agent gains by coming later."""
        self._charged += max(0.0, seconds)

    def exclude(self, seconds: float) -> None:
        """Leave out seconds that no search has to pay for, such as those of pricing an operator."""
        self._charged -= max(0.0, seconds)

    def count_applications(self, count: int = 1) -> None:
        """Count candidates as applied: `apply` does, and agents that apply them by other means say so.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        check_time()
        self.applications += count

    def apply(self, candidate: Candidate) -> Graph | None:
        """Return the graph that a candidate leads to, counted as an application; None where it gives no valid graph.

        Raises:
            OutOfTime: the time limit of the run is reached.
        """
        self.count_applications()
        try:
            return candidate.apply()
        except InvalidRewriteError:
            return None

    @property
    def best(self) -> Visit | None:
        """The visit with the highest lower bound of its screened speed-up; None before the first measurement."""
        return max(self.visits.values(), key=lambda visit: visit.latency.lower_bound, default=None)

    def measure(self, graph: Graph, actions: tuple[Action, ...]) -> Latency:
        """Return the screened latency of a graph. Only graphs that were not screened before count as measurements.

        Raises:
            OutOfTime: the time limit of the run is reached; nothing is recorded then.
        """
        known = self.visits.get(graph.hash)
        if known is not None:
            return known.latency
        begin = unblocked_time()
        latency = self.problem.measure(graph, "screen")
        self.charge(self.problem.cost(graph) - (unblocked_time() - begin))
        best = self.improvements[-1].speedup if self.improvements else 0.0
        self.visits[graph.hash] = Visit(graph, latency, actions)
        if actions and (latency.ok or not self.problem.violation(graph)):
            self.trials.add(None if latency.ok else f"{latency.status}: {latency.message}")
        if latency.ok and latency.speedup > best:
            self.improvements.append(
                Improvement(self.elapsed, self.measurements, self.applications, latency.speedup, latency.ms)
            )
        self.tell()
        return latency

    def beats(self, visit: Visit, other: Visit, gain: float = 0.0) -> bool:
        """Return whether a visited graph is faster than another by the share `gain`, when both are timed in turn.

        Of many graphs measured one by one against the original, the fastest was often lucky; those measurements only
        decide which graphs are compared. Where the meter cannot compare two graphs, the lower bounds decide.
        """
        mine, its = visit.latency, other.latency
        surely = mine.lower_bound > its.lower_bound * (1.0 + gain)
        if not mine.ok or not (surely or mine.speedup > its.speedup * (1.0 + gain)):
            return False
        begin = unblocked_time()
        compared = self.problem.compare(other.graph, visit.graph)
        if compared is None:
            return surely
        self.charge(compared[1] - (unblocked_time() - begin))
        self.tell()
        return compared[0].speedup > 1.0 + gain

    def tell(self) -> None:
        """Report progress."""
        if self.progress is not None:
            self.progress(self)


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """The outcome of a search with the file that holds it. When nothing is surely faster, `graph` is the original and
    the speed-up exactly 1.0."""

    agent: str
    graph: Graph
    latency: Latency
    actions: tuple[Action, ...]
    checked: CheckedModel
    """The saved graph, as it was compared with the original; only `checked.write_to` makes a result's file."""
    improvements: tuple[Improvement, ...]
    """Every graph that was the best so far by screening, in order."""
    measurements: int
    applications: int
    seconds: float
    message: str = ""
    growth: tuple[Growth, ...] = ()
    """The construction of the e-graph, rule by rule; empty for agents without one."""
    trials: Trials = field(default_factory=Trials)
    """Measurements of candidates and windows, and those that failed."""
    faults: RuleFaults = field(default_factory=RuleFaults)
    """Exceptions that the code of rules raised during the search, which went on without these matches."""
    path: tuple[tuple[int, float], ...] = ()
    """(actions applied, screened speed-up) of the graphs that were measured on the way to the result."""

    @property
    def rule_faults(self) -> Mapping[str, int]:
        """Number of exceptions that rules raised during the search, by the rule's name."""
        return dict(self.faults.counts.most_common())

    @property
    def verified(self) -> bool:
        """True where the saved file agrees with the original, opened as it will be deployed."""
        return self.checked.outcome.ok

    @property
    def max_rel_error(self) -> float:
        """Largest difference of any output from the original's, relative to the output's scale."""
        return self.checked.outcome.max_rel_error

    @property
    def trajectory(self) -> tuple[tuple[float, int, float], ...]:
        """(seconds, measurements, best speed-up by screening) at every improvement."""
        return tuple((point.seconds, point.measurements, point.speedup) for point in self.improvements)

    @property
    def is_original(self) -> bool:
        """True where the original is kept."""
        return not self.actions

    @property
    def rule_histogram(self) -> dict[str, int]:
        """Applied sites per rule."""
        counts: Counter[str] = Counter()
        for action in self.actions:
            counts[action.rule] += action.count
        return dict(counts.most_common())


class Agent(Protocol):
    """A search method. `seed` makes it reproducible up to the noise of the measurements."""

    name: str

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """Search within the budget, then validate; never returns a model that is slower than the original or wrong."""
        ...


def action_of(candidate: Candidate) -> Action:
    """Return the replayable record of a candidate."""
    return Action(candidate.key, candidate.rule, candidate.description, candidate.count)
