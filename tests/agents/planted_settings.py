"""A problem whose gain by session settings is planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from graph_rewrite import Graph
from graph_rewrite.latency import Effort, Latency, Plan
from graph_rewrite.task.models import open_model
from graph_rewrite.task.problem import Problem
from tests.agents.toys import ExactMeter, chain_problem

FACTORS = {"enable_mem_pattern": 0.9, "enable_cpu_mem_arena": 1.1}
"""Factor on the latency by each setting that is changed."""


class PlantedMeter(ExactMeter):
    """Latency is the cost of the graph times a factor per setting; screening adds luck to some settings."""

    factors: dict[str, float]
    luck: dict[str, float]
    half = 0.001

    def _ms(self, graph: Graph) -> float:
        ms = self.cost(graph)
        for name, value in graph.session_settings:
            ms *= self.factors.get(f"threads={value}" if name == "threads" else name, 1.0)
        return ms

    def _latency(self, ms: float, baseline_ms: float) -> Latency:
        speedup = baseline_ms / ms
        return Latency(ms, speedup, (speedup - self.half, speedup + self.half), 1, baseline_ms)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        ms = self._ms(graph)
        for name, _ in graph.session_settings:
            ms *= self.luck.get(name, 1.0) if effort == "screen" else 1.0
        return self._latency(ms, self._ms(self.baseline))

    def compare(self, reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
        return self._latency(self._ms(candidate), self._ms(reference))


def planted(
    folder: Path, factors: dict[str, float], luck: dict[str, float] | None = None, file: Path | None = None
) -> Problem:
    """Return a problem of one site, or of a file; `luck` is a factor on what screening finds."""
    problem = chain_problem(folder, 1)
    if file is not None:
        problem = replace(problem, model=open_model(f"file:{file}"))
    problem.rewriter.deployment = True
    meter = PlantedMeter(problem.model.original)
    meter.factors, meter.luck = factors, luck or {}
    problem.meter = meter
    return problem
