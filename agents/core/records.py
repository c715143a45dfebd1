"""The records that a search keeps: actions, measured graphs, improvements, the growth of an e-graph, failures."""

from __future__ import annotations

from dataclasses import dataclass, field

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.candidates import Candidate


@dataclass(frozen=True, slots=True)
class Action:
    """An applied candidate, replayable: `key` finds it again among the candidates of the graph before it."""

    key: str
    rule: str
    description: str
    count: int
    window_s: float | None = field(default=None, compare=False)
    """Seconds per inference that it saved in windows, at all sites together; None where no window was timed."""


def action_of(candidate: Candidate) -> Action:
    """Return the replayable record of a candidate."""
    return Action(candidate.key, candidate.rule, candidate.description, candidate.count)


@dataclass(frozen=True, slots=True)
class Visit:
    """A measured graph and the actions that lead to it from the start."""

    graph: Graph
    latency: Latency
    actions: tuple[Action, ...]
    again_s: float = 0.0
    """Seconds in which it was measured once more, before the search would stop for it."""
    forecast: float = 0.0
    """Share of the original's latency that it was forecast to save, before it was measured; 0.0 where nothing was."""
    looks: int = 0
    """Further measurements in races, which `latency` holds."""


@dataclass(frozen=True, slots=True)
class ProposedGraph:
    """A graph that is expected to be fast and was never run, with the actions that lead to it from the start."""

    graph: Graph
    actions: tuple[Action, ...]
    gain: float
    """Share of the original's latency that it is forecast to save."""


def supposed(graph: Graph, ms: float, actions: tuple[Action, ...] = ()) -> Visit:
    """Return the visit of a start that is taken to be as fast as the original, which takes so many milliseconds."""
    return Visit(graph, Latency(ms, 1.0, (1.0, 1.0), 0, ms), actions)


def is_supposed(visit: Visit) -> bool:
    """Return whether a graph is only taken to be as fast as the original: it was never run."""
    return visit.latency.ok and visit.latency.runs == 0


@dataclass(frozen=True, slots=True)
class Improvement:
    """A new best graph of a search: what had been spent by then, and its screened latency."""

    seconds: float
    measurements: int
    applications: int
    speedup: float
    latency_ms: float


@dataclass(frozen=True, slots=True)
class Growth:
    """An e-graph under construction after a rule was applied; the first of a run names no rule."""

    rule: str
    nodes: int
    """E-nodes."""
    cost_ms: float
    """Cost of the best graph in it by the cost model, with the shared greedy extraction."""


@dataclass(slots=True)
class Trials:
    """Measurements of rewritten graphs and windows: how many were taken, and how many of them gave no time.

    A graph beyond a limit, such as the one on size, is not measured and does not count.
    """

    count: int = 0
    failed: int = 0
    first_error: str = ""
    """The message of the first failure."""

    def add(self, error: str | None = None) -> None:
        """Count a measurement; `error` says why it gave no time."""
        self.count += 1
        if error is not None:
            self.failed += 1
            self.first_error = self.first_error or error or "no message"

    def __str__(self) -> str:
        """Return how many failed with the first error; empty where none did."""
        if not self.failed:
            return ""
        some = f"{self.failed} of {self.count} candidates could not be measured"
        which = f"none of the {self.count} candidates could be measured" if self.failed == self.count else some
        return f"{which}; the first error was: {self.first_error}"


@dataclass(frozen=True, slots=True)
class SizedSpeedup:
    """The best speed-up, by screening, of the measured graphs whose weights are at most `size` times the original's."""

    size: float
    speedup: float
    ci95: tuple[float, float]
    weights: int
    """Bytes of the weights of that graph."""
