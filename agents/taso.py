"""TASO's cost-based backtracking search (Jia et al., SOSP'19, algorithm 2); its best graphs are measured."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, OptimizationResult, Search, action_of
from agents.searching.cost_model import GraphCost, SumOfOperators, operator_prices
from agents.searching.deployment_search import reserved_applications, search_deployment
from agents.searching.session_search import search_session
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.task.problem import Problem


@dataclass(frozen=True, slots=True)
class Ranked:
    """A graph with its cost by the cost model, in milliseconds, and the actions that lead to it."""

    cost: float
    graph: Graph
    actions: tuple[Action, ...]


def backtracking_search(
    start: Graph,
    *,
    candidates: Callable[[Graph], Sequence[Candidate]],
    apply: Callable[[Candidate], Graph | None],
    cost: GraphCost,
    alpha: float,
    keep: int,
    iterations: int | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Ranked]:
    """Algorithm 2 of TASO: graphs leave a queue in the order of their cost; of what one substitution leads to, all
    that costs less than `alpha` times the best so far is queued. Graphs are told apart by `Graph.hash`.

    The queue holds the last substitution and not the graph it leads to, which is made again when its turn comes:
    most are never looked at again, and a graph of a thousand nodes takes half a megabyte.

    Args:
        candidates: the substitutions of a graph.
        apply: applies one; None where no valid graph results.
        alpha: 1 is greedy without backtracking; infinite visits every graph that can be reached.
        keep: how many of the cheapest graphs are returned.
        iterations: graphs taken from the queue at most; None for no limit.
        stop: asked before every application; true ends the search.

    Returns:
        The cheapest graphs, cheapest first, `start` among them if it is one.
    """
    first = Ranked(cost(start), start, ())
    best, opened, order = first.cost, 0, itertools.count()
    kept = [first]
    visited = {start.hash}
    queue: list[tuple[float, int, Candidate | None, tuple[Action, ...]]] = [(first.cost, next(order), None, ())]
    while queue and (iterations is None or opened < iterations):
        opened += 1
        _, _, made_by, actions = heapq.heappop(queue)
        graph = start if made_by is None else made_by.apply()
        for candidate in candidates(graph):
            if stop():
                return kept
            after = apply(candidate)
            if after is None or after.hash in visited:
                continue
            visited.add(after.hash)
            found = Ranked(cost(after), after, (*actions, action_of(candidate)))
            kept = sorted([*kept, found], key=lambda ranked: ranked.cost)[:keep]
            gains, best = found.cost < best, min(best, found.cost)
            # Line 15 taken at its word would queue nothing with alpha = 1, which is meant to be greedy.
            if gains or found.cost < alpha * best:
                heapq.heappush(queue, (found.cost, next(order), candidate, found.actions))
    return kept


class TasoAgent:
    """Backtracking search by the sum of operators; its `rerank` cheapest graphs are measured end to end, and the
    fastest goes through deployment search, which a cost model cannot do.

    The paper's own search is `rerank=1`: the graph with the least cost is the result, measured once.

    Args:
        alpha: how much worse than the best a graph may be to be explored; 1.05 in the paper's evaluation.
        rerank: graphs that are measured.
        iterations: graphs taken from the queue at most, 1000 in TASO's code; 0 for no limit.
        share: part of the budget's seconds that goes into the search, the rest being for measurements.
        deployment: try deployment choices and session settings on the fastest graph.
        cost: cost model; by default the sum of operators, each timed once in ONNX Runtime.

    Raises:
        UserError: an option out of range.
    """

    name = "taso"

    def __init__(
        self,
        alpha: float = 1.05,
        rerank: int = 5,
        iterations: int = 1000,
        share: float = 0.5,
        deployment: bool = True,
        cost: GraphCost | None = None,
    ) -> None:
        if not alpha >= 1.0:
            raise UserError(f"taso: alpha must be 1 or more, got {alpha}")
        if rerank < 1 or iterations < 0 or not 0.0 < share <= 1.0:
            raise UserError(
                f"taso: rerank must be 1 or more, iterations 0 or more and share above 0 and at most 1, "
                f"got {rerank}, {iterations} and {share}"
            )
        self.alpha, self.rerank, self.iterations, self.share = alpha, rerank, iterations, share
        self.deployment, self.cost = deployment, cost

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """`seed` changes nothing: the search is deterministic."""
        search = Search(problem, budget, progress)
        with search.running():
            self._search(search)
        return conclude(search, self.name)

    def _search(self, search: Search) -> None:
        cheapest = [(ranked.graph, ranked.actions) for ranked in self._cheapest(search)]
        if self.rerank > 1:
            # Where the cost model was wrong about all of them, deployment search still has something to begin with.
            cheapest.append((search.problem.model.graph, ()))
        for graph, actions in cheapest:
            if search.can_measure:
                search.measure(graph, actions)
        if self.deployment:
            search_deployment(search)
            search_session(search)

    def _cheapest(self, search: Search) -> list[Ranked]:
        problem, budget = search.problem, search.budget
        reserved = reserved_applications(search) if self.deployment else 0

        def stop() -> bool:
            limit = budget.applications
            spent = limit is not None and search.applications >= limit - reserved
            return spent or search.seconds >= self.share * search.allowed

        def substitutions(graph: Graph) -> list[Candidate]:
            return [c for c in problem.rewriter.candidates(graph) if c.kind != "deployment"]

        cost = self.cost or SumOfOperators(operator_prices(problem), search)
        return backtracking_search(
            problem.model.graph, candidates=substitutions, apply=search.apply, cost=cost, alpha=self.alpha,
            keep=self.rerank, iterations=self.iterations or None, stop=stop,
        )  # fmt: skip
