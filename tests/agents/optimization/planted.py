"""A search in the place of the real one: greedy and short, it remembers what it was given to begin with."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.core.base import Budget, OptimizationResult, Search
from agents.greedy import GreedyAgent
from agents.optimization.outcome import Optimization
from agents.searching.known_starts import Start, measure_starts
from graph_rewrite.task.problem import Problem

LIMIT = "60s"
Optimize = Callable[..., Optimization]


class PlantedAgent(GreedyAgent):
    """A greedy search over whole classes, which remembers what it was given to begin with."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: Sequence[Start] = ()
        self.searched: list[Sequence[Start]] = []
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
        starts, self.starts = self.starts, ()  # a real run makes an agent of its own

        def ending(search: Search) -> None:
            if self.measures_starts and search.measurements == 1:
                measure_starts(search, starts)
            if self.end_at_once and search.measurements > 5:
                search.end()
            if progress is not None:
                progress(search)

        few = Budget(self.measurements, budget.seconds, conclusion_s=0.0)
        return super().optimize(problem, few, seed=seed, progress=ending)
