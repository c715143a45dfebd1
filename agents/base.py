"""What every agent takes and gives: a problem, a budget, a result."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import entry_points
from typing import Protocol

from envs.problem import Problem
from graph_rewrite.candidates import Candidate
from graph_rewrite.ir import Graph
from graph_rewrite.latency import Latency


@dataclass(frozen=True, slots=True)
class Budget:
    """What an agent may spend; whichever ends first ends the search.

    `measurements` are latencies of graphs that were not measured before in the search; `seconds` are wall-clock, where
    a latency that another search already measured is charged what it took then.
    """

    measurements: int = 100
    seconds: float = 60.0


@dataclass(frozen=True, slots=True)
class Action:
    """One applied candidate, replayable: `key` finds it again among the candidates of the graph before it."""

    key: str
    rule: str
    description: str
    count: int


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
    trajectory: list[tuple[float, int, float]] = field(default_factory=list)
    """(seconds, measurements, best speed-up by screening) at every improvement."""
    _start: float = field(default_factory=time.monotonic)
    _charged: float = 0.0

    @property
    def measurements(self) -> int:
        return len(self.visits)

    @property
    def seconds(self) -> float:
        """Seconds since the search began, as if every measurement had been taken for this search alone."""
        return time.monotonic() - self._start + self._charged

    @property
    def exhausted(self) -> bool:
        return self.measurements >= self.budget.measurements or self.seconds >= self.budget.seconds

    @property
    def best(self) -> Visit | None:
        """The visit with the highest screened speed-up; None before the first measurement."""
        return max(self.visits.values(), key=lambda visit: visit.latency.speedup, default=None)

    def measure(self, graph: Graph, actions: tuple[Action, ...]) -> Latency:
        """Screen a graph, unless it was before. Only new graphs count."""
        known = self.visits.get(graph.hash)
        if known is not None:
            return known.latency
        begin = time.monotonic()
        latency = self.problem.measure(graph, "screen")
        self._charged += max(0.0, self.problem.cost(graph) - (time.monotonic() - begin))
        before = self.best
        self.visits[graph.hash] = Visit(graph, latency, actions)
        if before is None or latency.speedup > before.latency.speedup:
            self.trajectory.append((self.seconds, self.measurements, latency.speedup))
        if self.progress is not None:
            self.progress(self)
        return latency


@dataclass(frozen=True, slots=True)
class OptimizationResult:
    """A checked result. When nothing is surely faster, `graph` is the original and the speed-up exactly 1.0."""

    agent: str
    graph: Graph
    latency: Latency
    actions: tuple[Action, ...]
    trajectory: tuple[tuple[float, int, float], ...]
    measurements: int
    seconds: float
    verified: bool
    max_rel_error: float
    message: str = ""

    @property
    def is_original(self) -> bool:
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
    """The replayable record of a candidate."""
    return Action(candidate.key, candidate.rule, candidate.description, candidate.count)


def make_agent(name: str, **options: object) -> Agent:
    """An agent by name: ours, or one that another package registers under the entry point group `rewritegym.agents`.

    Raises:
        ValueError: no such agent; the message lists those that exist.
    """
    from agents.greedy import GreedyAgent
    from agents.ppo.agent import PPOAgent
    from agents.random_agent import RandomAgent

    factories: dict[str, Callable[..., Agent]] = {
        "random": RandomAgent, "greedy": GreedyAgent, "ppo": PPOAgent,
    }  # fmt: skip
    for point in entry_points(group="rewritegym.agents"):
        factories.setdefault(point.name, point.load())
    if name not in factories:
        raise ValueError(f"there is no agent {name!r}; there are {', '.join(sorted(factories))}")
    return factories[name](**options)
