"""Greedy search by measured latency: take the best candidate of each round until none helps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from agents.base import Action, Budget, OptimizationResult, Search, action_of
from agents.validate import conclude
from envs.problem import Problem
from graph_rewrite.candidates import Candidate
from graph_rewrite.ir import Graph


class GreedyAgent:
    """Hill climbing. Each round measures the candidates of the current graph, those with the most sites first, and
    moves to the fastest if it is faster by `margin`. A round that the budget cannot finish still moves to its best.

    Ties in the number of sites are broken by a seeded shuffle, so that repeats see different parts of wide rounds.
    """

    name = "greedy"

    def __init__(self, margin: float = 0.003, round_share: float = 0.5) -> None:
        self.margin, self.round_share = margin, round_share

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        rng = np.random.default_rng(seed)
        search = Search(problem, budget, progress)
        graph = problem.model.graph
        actions: tuple[Action, ...] = ()
        speedup = search.measure(graph, actions).speedup
        while not search.exhausted:
            step = self._round(search, graph, actions, rng)
            if step is None or step[2] <= speedup * (1.0 + self.margin):
                break
            graph, actions, speedup = step
        return conclude(search, self.name)

    def _round(
        self, search: Search, graph: Graph, actions: tuple[Action, ...], rng: np.random.Generator
    ) -> tuple[Graph, tuple[Action, ...], float] | None:
        """The best neighbour found with at most `round_share` of what is left of the budget."""
        left = search.budget.measurements - search.measurements
        last_count = search.measurements + max(1, int(left * self.round_share))
        last_second = search.seconds + (search.budget.seconds - search.seconds) * self.round_share
        best: tuple[Graph, tuple[Action, ...], float] | None = None
        for candidate in self._ordered(search.problem.rewriter.candidates(graph), rng):
            if search.exhausted or search.measurements >= last_count or search.seconds >= last_second:
                break
            after = candidate.apply()
            path = (*actions, action_of(candidate))
            latency = search.measure(after, path)
            if latency.ok and (best is None or latency.speedup > best[2]):
                best = after, path, latency.speedup
        return best

    @staticmethod
    def _ordered(candidates: Sequence[Candidate], rng: np.random.Generator) -> list[Candidate]:
        shuffled = [candidates[i] for i in rng.permutation(len(candidates))]
        kinds = {"deployment": 0, "class": 1, "site": 2}
        return sorted(shuffled, key=lambda candidate: (kinds[candidate.kind], -candidate.count))
