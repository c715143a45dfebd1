"""TENSAT: equality saturation, then extraction by an integer program (Yang et al., MLSys'21)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.records import Growth
from agents.egraph.base import NodePrices, check_methods, matches_left, measure_extracted, source_nodes
from agents.searching.cost_model import OperatorPrices
from agents.searching.deployment_search import reserved_applications, search_deployment
from agents.searching.session_search import search_session
from graph_rewrite.egraph import Application, EGraph, apply_rule, from_graph
from graph_rewrite.egraph.costs import NodeCost, SharedCostTracker, costed
from graph_rewrite.egraph.extract import Method
from graph_rewrite.egraph.saturation import Matching, multi_first, rounds
from graph_rewrite.errors import UserError
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.problem import Problem


class TensatAgent:
    """Applies all rules at once to an e-graph; the graphs extracted from it are measured, and the fastest goes through
    deployment search.

    Args:
        k_multi: iterations in which rules of several patterns are applied, before all others.
        iterations: iterations at most.
        node_limit: the construction stops once an application leaves this many e-nodes.
        matching: `iteration`, the paper's way: all rules are matched as an iteration begins, so that rules of several
            patterns do not feed on what others of them have just added; `application`: before each application.
        final: extraction method: `ilp`, `dag`, `shared` or `tree`.
        rerank: graphs that are extracted and measured; 1 is the paper's search.
        share: part of the budget's seconds for construction and extraction, the rest being for measurements.
        deployment: try deployment choices and session settings on the fastest graph.
        prices: what operators take alone; by default each is timed once in ONNX Runtime.

    Raises:
        UserError: an option out of range.
    """

    name = "tensat"

    def __init__(
        self,
        k_multi: int = 1,
        iterations: int = 15,
        node_limit: int = 2000,
        matching: Matching = "iteration",
        final: Method = "ilp",
        rerank: int = 5,
        share: float = 0.5,
        deployment: bool = True,
        prices: OperatorPrices | None = None,
    ) -> None:
        check_methods("tensat", final=final)
        if matching not in ("iteration", "application"):
            raise UserError(f"tensat: matching must be iteration or application, not {matching!r}")
        if k_multi < 0 or iterations < 1 or node_limit < 1 or rerank < 1 or not 0.0 < share <= 1.0:
            raise UserError(
                f"tensat: k_multi must be 0 or more, iterations, node_limit and rerank 1 or more, share above 0 and at "
                f"most 1, got {k_multi}, {iterations}, {node_limit}, {rerank} and {share}"
            )
        self.k_multi, self.iterations, self.node_limit, self.final = k_multi, iterations, node_limit, final
        self.matching: Matching = matching
        self.rerank, self.share, self.deployment, self.prices = rerank, share, deployment, prices

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        """`seed` changes nothing: the search is deterministic."""
        search = Search(problem, budget, progress)
        with search.running():
            self._search(search)
        return conclude(search, self.name)

    def _search(self, search: Search) -> None:
        problem = search.problem
        egraph = from_graph(problem.model.graph)
        original = source_nodes(egraph)
        cost = NodePrices(search, self.prices).cost
        costed(egraph, cost)  # the original's operators are priced first, in case time runs out
        applications = self.construct(search, egraph, problem.rewriter.rules, cost)
        measure_extracted(search, [(egraph, applications)], cost, original, method=self.final, keep=self.rerank)
        if self.deployment:
            search_deployment(search)
            search_session(search)

    def construct(self, search: Search, egraph: EGraph, rules: Sequence[Rule], cost: NodeCost) -> list[Application]:
        """Saturate `egraph` within the limits and the search's budget; what was applied."""
        tracker = SharedCostTracker(egraph, cost)
        search.growth.append(Growth("", egraph.size, tracker.root_cost()))
        reserved = reserved_applications(search) if self.deployment else 0
        done: list[Application] = []
        for iteration in range(self.iterations):
            changed = False
            order = multi_first(self.k_multi)(iteration, rules)
            for rule, found in rounds(egraph, order, self.matching, matches_left(search, reserved)):
                left = matches_left(search, reserved)
                if left == 0 or search.seconds >= self.share * search.allowed:
                    return done
                if found is not None and len(found.found) > left:
                    found.found, found.stopped = found.found[:left], True
                report = apply_rule(egraph, rule, match_limit=left, round=found, faults=search.problem.rewriter.faults)
                search.count_applications(report.applied)
                done.append(report)
                changed = changed or report.changed or not report.complete
                if report.changed:
                    tracker.update()
                    search.growth.append(Growth(rule.name, egraph.size, tracker.root_cost()))
                if egraph.size >= self.node_limit:
                    return done
            if not changed and iteration + 1 >= self.k_multi:
                return done
        return done
