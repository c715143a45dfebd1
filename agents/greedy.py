"""Greedy search by measured latency, plain or as a beam with look-ahead that crosses valleys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from agents.conclusion.conclude import conclude
from agents.conclusion.racing import race
from agents.core.base import Action, Budget, OptimizationResult, Search, action_of
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import enables


@dataclass(frozen=True, slots=True)
class MeasuredGraph:
    """A graph with its measured speed-up over the original, and the actions that lead to it."""

    graph: Graph
    actions: tuple[Action, ...]
    speedup: float


class GreedyAgent:
    """Hill climbing. Each round measures the candidates of the current graph, those with the most sites first, and
    moves to the fastest if it is faster by `margin`. A round that the budget cannot finish still moves to its best.

    Ties in the number of sites are broken by a seeded shuffle, so that repeats see different parts of wide rounds.

    Some rewrites pay only after others: a change of layout costs two Transposes until they have moved through the graph
    and meet their inverses. `beam` graphs of a round go on, faster or not, and the search ends after `depth` rounds in
    a row without a gain. With `lookahead`, each macro candidate (all sites of a class) is followed by that many further
    ones, drawn from those that the rewrite before made possible, and the end of the rollout is measured too.

    Of many graphs that were measured once, the fastest was often lucky. With `racing`, those of a round that may be
    among the fastest are measured again before any of them goes on, for as long as the round took at most (`race`).

    Args:
        margin: relative gain that counts as one.
        round_share: part of what is left of the budget that one round may spend.
        beam: graphs that go on from round to round.
        depth: rounds without a gain that end the search.
        lookahead: rewrites per rollout; 0 for none.
        racing: measure those again that may be among the fastest of a round.

    Raises:
        UserError: an option out of range.
    """

    name = "greedy"

    def __init__(
        self, margin: float = 0.003, round_share: float = 0.5, beam: int = 1, depth: int = 1, lookahead: int = 0,
        racing: bool = False,
    ) -> None:  # fmt: skip
        if beam < 1 or depth < 1 or lookahead < 0:
            raise UserError(
                f"greedy: beam and depth must be 1 or more and lookahead 0 or more, got {beam}, {depth} and {lookahead}"
            )
        if margin < 0.0 or not 0.0 < round_share <= 1.0:
            raise UserError(
                "greedy: margin must be 0 or more and round_share above 0 and at most 1, "
                f"got {margin} and {round_share}"
            )
        self.margin, self.round_share = margin, round_share
        self.beam, self.depth, self.lookahead, self.racing = beam, depth, lookahead, racing

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        search = Search(problem, budget, progress)
        graph = problem.model.graph
        with search.running():
            start = MeasuredGraph(graph, (), search.measure(graph, ()).speedup)
            self.climb(search, start, np.random.default_rng(seed))
        return conclude(search, self.name)

    def climb(self, search: Search, start: MeasuredGraph, rng: np.random.Generator) -> None:
        """Climb from a measured graph until nothing gains or the budget ends; `search` records the graphs."""
        level, best, idle, expanded = [start], start.speedup, 0, set[str]()
        while level and idle < self.depth and not search.exhausted:
            expanded |= {step.graph.hash for step in level}
            began = search.seconds
            found = [step for step in self._round(search, level, rng) if step.graph.hash not in expanded]
            if self.racing and not search.exhausted:
                found = self._raced(search, found, min(2.0 * search.seconds - began, search.after(self.round_share)))
            level = found[: self.beam]
            gains = bool(level) and level[0].speedup > best * (1.0 + self.margin)
            best, idle = (level[0].speedup, 0) if gains else (best, idle + 1)

    def _round(self, search: Search, level: Sequence[MeasuredGraph], rng: np.random.Generator) -> list[MeasuredGraph]:
        """Return the graphs that those of a level lead to, fastest first, with at most `round_share` of what is left of
        the budget, in equal parts."""
        found: dict[str, MeasuredGraph] = {}
        for number, step in enumerate(level):
            share = self.round_share / (len(level) - number)
            left = search.budget.measurements - search.measurements
            last_count = search.measurements + max(1, int(left * share))
            last_second = search.after(share)
            for candidate in ordered(search.problem.rewriter.candidates(step.graph), rng):
                if search.exhausted or search.measurements >= last_count or search.seconds >= last_second:
                    break
                for reached in self._try(search, step, candidate, rng):
                    found.setdefault(reached.graph.hash, reached)
        return sorted(found.values(), key=lambda step: -step.speedup)

    def _raced(self, search: Search, found: Sequence[MeasuredGraph], last: float) -> list[MeasuredGraph]:
        """Measure those that may be among the fastest again, until a time of the search. Return those that run, fastest
        first."""
        visits = [search.visits[step.graph.hash] for step in found]
        ranked = race(search, visits, self.beam, lambda: search.seconds >= last)
        return [MeasuredGraph(one.graph, one.actions, one.latency.speedup) for one in ranked if one.latency.ok]

    def _try(
        self, search: Search, step: MeasuredGraph, candidate: Candidate, rng: np.random.Generator
    ) -> list[MeasuredGraph]:
        """Measure the graph that a candidate leads to, and the end of a rollout from there. Return those that run."""
        after = search.apply(candidate)
        if after is None:
            return []
        reached = [(after, (*step.actions, action_of(candidate)))]
        if self.lookahead and candidate.kind != "deployment":
            reached += self._roll_out(search, step.graph, *reached[0], rng)
        steps = []
        for graph, actions in reached:
            if search.can_measure:
                latency = search.measure(graph, actions)
                steps += [MeasuredGraph(graph, actions, latency.speedup)] if latency.ok else []
        return steps

    def _roll_out(
        self, search: Search, before: Graph, graph: Graph, actions: tuple[Action, ...], rng: np.random.Generator
    ) -> list[tuple[Graph, tuple[Action, ...]]]:
        """Return the end of a rollout, empty where it takes no step. It never returns to a graph it passed."""
        passed, start = {before.hash, graph.hash}, len(actions)
        for _ in range(self.lookahead):
            choices = macro_candidates(enabled(search.problem, before, graph))
            for choice in rng.permutation(len(choices)):
                after = search.apply(choices[int(choice)]) if search.can_apply else None
                if after is not None and after.hash not in passed:
                    before, graph, actions = graph, after, (*actions, action_of(choices[int(choice)]))
                    passed.add(graph.hash)
                    break
            else:
                break
        return [(graph, actions)] if len(actions) > start else []


def ordered(candidates: Sequence[Candidate], rng: np.random.Generator) -> list[Candidate]:
    """Return deployment choices, classes, then sites; most sites first, ties by a seeded shuffle."""
    shuffled = [candidates[i] for i in rng.permutation(len(candidates))]
    kinds = {"deployment": 0, "class": 1, "site": 2}
    return sorted(shuffled, key=lambda candidate: (kinds[candidate.kind], -candidate.count))


def macro_candidates(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the classes, and the sites that belong to none of them."""
    classes = [candidate for candidate in candidates if candidate.kind == "class"]
    covered = {candidate.site.class_key for candidate in classes}
    return classes + [c for c in candidates if c.kind == "site" and c.site.class_key not in covered]


def enabled(problem: Problem, before: Graph, after: Graph) -> list[Candidate]:
    """Return the candidates of `after` with a site that `before` did not have."""
    is_enabled = enables(problem.rewriter, before)
    return [candidate for candidate in problem.rewriter.candidates(after) if is_enabled(candidate.sites)]
