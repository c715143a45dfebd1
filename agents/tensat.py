"""TENSAT: equality saturation, then extraction by an integer program (Yang et al., MLSys'21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.base import Budget, OptimizationResult, Search
from agents.cost_model import OperatorPrices
from agents.deployment_search import RESERVED_APPLICATIONS, search_deployment
from agents.egraph_search import check_methods, matches_left, measure_extracted, price_cost, source_nodes
from agents.validate import conclude
from envs.problem import Problem
from graph_rewrite.egraph import Application, EGraph, apply_rule, from_graph
from graph_rewrite.egraph.costs import costed
from graph_rewrite.egraph.extract import Method
from graph_rewrite.egraph.saturate import multi_first
from graph_rewrite.rule import Rule


class TensatAgent:
    """All rules at once on an e-graph; the graphs extracted from it are measured, and the fastest goes through
    deployment search.

    Args:
        k_multi: iterations in which rules of several patterns are applied, before all others.
        iterations: iterations at most.
        node_limit: the construction stops once an application leaves this many e-nodes.
        final: extraction method: `ilp`, `dag`, `shared` or `tree`.
        rerank: graphs that are extracted and measured; 1 is the paper's search.
        share: part of the budget's seconds for construction and extraction, the rest being for measurements.
        deployment: try deployment choices on the fastest graph.
        prices: what operators take alone; by default each is timed once in ONNX Runtime.

    Raises:
        ValueError: an option out of range.
    """

    name = "tensat"

    def __init__(
        self,
        k_multi: int = 1,
        iterations: int = 15,
        node_limit: int = 2000,
        final: Method = "ilp",
        rerank: int = 5,
        share: float = 0.5,
        deployment: bool = True,
        prices: OperatorPrices | None = None,
    ) -> None:
        check_methods("tensat", final=final)
        if k_multi < 0 or iterations < 1 or node_limit < 1 or rerank < 1 or not 0.0 < share <= 1.0:
            raise ValueError(
                f"tensat: k_multi must be 0 or more, iterations, node_limit and rerank 1 or more, share above 0 and at "
                f"most 1, got {k_multi}, {iterations}, {node_limit}, {rerank} and {share}"
            )
        self.k_multi, self.iterations, self.node_limit, self.final = k_multi, iterations, node_limit, final
        self.rerank, self.share, self.deployment, self.prices = rerank, share, deployment, prices

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """`seed` changes nothing: the search is deterministic."""
        search = Search(problem, budget, progress)
        egraph = from_graph(problem.model.graph)
        original, deadline = source_nodes(egraph), self.share * budget.seconds
        cost = price_cost(search, deadline, self.prices)
        costed(egraph, cost)  # the original's operators are priced first, in case time runs out
        applications = self._construct(search, egraph, problem.rewriter.rules)
        if search.can_measure and self.rerank > 1:
            # Where the cost model was wrong about all of them, deployment search still has something to begin with.
            search.measure(problem.model.graph, ())
        measure_extracted(search, [(egraph, applications)], cost, original, method=self.final, keep=self.rerank)
        if self.deployment:
            search_deployment(search)
        return conclude(search, self.name)

    def _construct(self, search: Search, egraph: EGraph, rules: Sequence[Rule]) -> list[Application]:
        reserved = RESERVED_APPLICATIONS if self.deployment and search.problem.rewriter.deployment else 0
        done: list[Application] = []
        for iteration in range(self.iterations):
            changed = False
            for rule in multi_first(self.k_multi)(iteration, rules):
                left = matches_left(search, reserved)
                if left == 0 or search.seconds >= self.share * search.budget.seconds:
                    return done
                report = apply_rule(egraph, rule, match_limit=left)
                search.applications += report.applied
                done.append(report)
                changed = changed or report.changed or not report.complete
                if egraph.size >= self.node_limit:
                    return done
            if not changed and iteration + 1 >= self.k_multi:
                return done
        return done
