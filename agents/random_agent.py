"""The random agent: uniform legal actions, measured along the way."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, action_of
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import Problem

FRUITLESS_ROLLOUTS = 50
"""Rollouts in a row without a new graph after which there is nothing more to find."""


class RandomAgent:
    """Takes rollouts of uniformly drawn candidates, each of at most `horizon` steps, every `measure_every`-th graph and
    the last one measured.

    Raises:
        UserError: an option is less than 1.
    """

    name = "random"

    def __init__(self, horizon: int = 10, measure_every: int = 1) -> None:
        if horizon < 1 or measure_every < 1:
            raise UserError(f"random: horizon and measure_every must be at least 1, got {horizon} and {measure_every}")
        self.horizon, self.measure_every = horizon, measure_every

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        rng = np.random.default_rng(seed)
        search = Search(problem, budget, progress)
        with search.running():
            self._roll_out_all(search, rng)
        return conclude(search, self.name)

    def _roll_out_all(self, search: Search, rng: np.random.Generator) -> None:
        problem = search.problem
        fruitless = 0
        while not search.exhausted and fruitless < FRUITLESS_ROLLOUTS:
            before = search.measurements
            graph = problem.model.graph
            actions: tuple[Action, ...] = ()
            for step in range(int(rng.integers(1, self.horizon + 1))):
                candidates = problem.rewriter.candidates(graph)
                if not candidates or search.exhausted:
                    break
                candidate = candidates[int(rng.integers(len(candidates)))]
                after = search.apply(candidate)
                if after is None:
                    break
                graph, actions = after, (*actions, action_of(candidate))
                if (step + 1) % self.measure_every == 0:
                    search.measure(graph, actions)
            if search.can_measure:
                search.measure(graph, actions)
            fruitless = 0 if search.measurements > before else fruitless + 1
            if not problem.rewriter.candidates(problem.model.graph):
                break
