"""The outcome of a search."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from agents.core.records import Action, Growth, Improvement, SizedSpeedup, Trials
from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from graph_rewrite.rewriting.faults import RuleFaults


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
    tradeoff: tuple[SizedSpeedup, ...] = ()
    """The best screened speed-ups within multiples of the original's weights."""
    path: tuple[tuple[int, float], ...] = ()
    """(actions applied, screened speed-up) of the graphs that were measured on the way to the result."""

    def remarked(self, *remarks: str) -> Self:
        """Return this result with remarks behind its message; empty ones are left out."""
        return replace(self, message="; ".join(filter(None, (self.message, *remarks))))

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
