"""A search in the place of the real one: greedy and short, it remembers what it was given to begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Budget, OptimizationResult, Search
from agents.greedy import GreedyAgent
from agents.optimization import run
from agents.optimization.outcome import Optimization
from agents.searching.known_starts import Start, measure_starts
from graph_rewrite.ir.graph import Graph
from graph_rewrite.task.problem import Problem, open_problem
from tests.envs.fakes import OperatorCountMeter

LIMIT = "60s"
Meter = Callable[[Graph], OperatorCountMeter]
Optimize = Callable[..., Optimization]


class PlantedAgent(GreedyAgent):
    """A greedy search over whole classes, which remembers what it was given to begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: Sequence[Start] = ()
        self.searched: list[Sequence[Start]] = []
        self.budgets: list[Budget] = []
        self.end_at_once = False
        self.measurements = 60
        self.measures_starts = False

    def optimize(
        self,
        problem: Problem,
        budget: Budget,
        *,
        seed: int = 0,
        progress: Callable[[Search], None] | None = None,
    ) -> OptimizationResult:
        self.searched.append(self.starts)
        self.budgets.append(budget)
        starts, self.starts = self.starts, ()  # a real run makes an agent of its own

        def ending(search: Search) -> None:
            if self.measures_starts and search.measurements == 1:
                measure_starts(search, starts)
            if self.end_at_once and search.measurements > 5:
                search.end()
            if progress is not None:
                progress(search)

        few = Budget(self.measurements, budget.seconds, conclusion_s=0.0, provisional=budget.provisional)
        return super().optimize(problem, few, seed=seed, progress=ending)


def opening_with(meter: Meter) -> Callable[..., Problem]:
    """Return `open_problem` with a meter of the original in the place of the real one."""

    def opened(*arguments: Any, **options: Any) -> Problem:
        return open_problem(*arguments, **options, meter=lambda model, *_: meter(model.original))

    return opened


def plant(monkeypatch: pytest.MonkeyPatch, cache: Path, meter: Meter = OperatorCountMeter) -> PlantedAgent:
    """Plant an agent for every search, with a meter of the original and a cache of the test's own."""
    made = PlantedAgent()
    monkeypatch.setenv("REWRITEGYM_CACHE", str(cache))
    monkeypatch.setattr(run, "make_agent", lambda spec: made)
    monkeypatch.setattr(run, "open_problem", opening_with(meter))
    return made
