"""A search that takes random rewrites, whether they gain or not, so that unusual rules meet."""

from __future__ import annotations

import random
from collections.abc import Callable

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, action_of
from graph_rewrite.errors import InvalidRewriteError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import OperatorCountMeter

MOST_STEPS = 14


class LastIsBest(OperatorCountMeter):
    """Every graph is twice as fast as the original, so that what a walk ends at is what is handed over."""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        speedup = 1.0 if graph.hash == self.baseline.hash else 2.0
        return Latency(1.0 / speedup, speedup, (speedup, speedup), 1, 1.0)


class WalkAgent:
    """Takes random rewrites and concludes with the last graph."""

    name = "walk"
    path: tuple[tuple[str, Graph], ...] = ()
    """The rules that the latest walk took, each with the graph that it led to."""

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        search, rng = Search(problem, budget, progress), random.Random(seed)
        WalkAgent.path = ()
        graph, actions = problem.model.graph, tuple[Action, ...]()
        with search.running():
            search.measure(problem.model.original, ())
            seen = {graph.hash}
            for _ in range(rng.choice((1, 3, 6, MOST_STEPS))):
                if (step := _step(problem, graph, rng, seen)) is None:
                    break
                graph, actions = step[0], (*actions, step[1])
                seen.add(graph.hash)
                WalkAgent.path += ((step[1].rule, graph),)
            search.measure(graph, actions)
        return conclude(search, self.name)


def _step(problem: Problem, graph: Graph, rng: random.Random, seen: set[str]) -> tuple[Graph, Action] | None:
    """Return the graph that a random candidate leads to; None where there is none that is new."""
    offered = list(problem.rewriter.candidates(graph))
    while offered:
        candidate = _drawn(offered, rng)
        offered.remove(candidate)
        try:
            after = candidate.apply()
        except InvalidRewriteError:
            continue
        if after.hash not in seen and not problem.violation(after):
            return after, action_of(candidate)
    return None


def _drawn(offered: list[Candidate], rng: random.Random) -> Candidate:
    """Return a candidate: first a rule is drawn, so that those with few sites have their turn."""
    deployment = [c for c in offered if c.kind == "deployment"]
    rewrites = [c for c in offered if c.kind != "deployment"]
    if deployment and (not rewrites or rng.random() < 0.05):
        return rng.choice(deployment)
    rules = sorted({c.rule for c in rewrites})
    chosen = rng.choice(rules)
    return rng.choice([c for c in rewrites if c.rule == chosen])
