"""The agent `egraph-mcts`: an e-graph built by tree search, then extraction (Hartmann et al., PACT'24)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from agents.conclusion.conclude import conclude
from agents.core.base import Budget, OptimizationResult, Search
from agents.core.records import Growth
from agents.egraph.base import NodePrices, applications_left, check_methods, measure_extracted, source_nodes
from agents.egraph_mcts.search import EXPLORATION, ConstructionOptions, ConstructionSearch
from agents.egraph_mcts.simulation import ConstructionState
from agents.searching.cost_model import OperatorPrices
from agents.searching.deployment_search import reserved_applications, search_deployment
from agents.searching.session_search import search_session
from graph_rewrite.egraph import EGraph, from_graph
from graph_rewrite.egraph.extract import Method
from graph_rewrite.errors import UserError
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.task.problem import Problem

MOVE_SHARE = 0.25
"""Part of the time left for the construction that the search for one rule may take."""


class EGraphMCTSAgent:
    """Chooses rule by rule what the e-graph is built from, by simulations with a cost model; the graphs extracted from
    it are measured, and the fastest goes through deployment search.

    The construction ends with its share of the seconds. Within it, each rule may take a quarter of what is left; after
    it, what was built so far is extracted.

    Args:
        budget: simulations per applied rule.
        depth: applications per simulation.
        node_limit: the construction stops once an application leaves this many e-nodes.
        exploration: constant of UCB1, for rewards in percent of the original's cost.
        stop_probability: how often the selection stops at a node with untried rules.
        main: extraction that gives the rewards: `shared`, `tree`, `dag` or `ilp`.
        final: extraction at the end: `ilp`, `dag`, `shared` or `tree`.
        reuse: go on with the subtree below the rule that was chosen.
        in_flight: simulations on their way at once; what is found depends on this number, and not on `workers`.
        workers: processes that simulate, at most `in_flight`; 0 for one per core.
        rerank: graphs that are extracted and measured; 1 is the paper's search.
        share: part of the budget's seconds for construction, the rest being for extraction and measurements.
        deployment: try deployment choices and session settings on the fastest graph.
        prices: what operators take alone; by default each is timed once in ONNX Runtime.

    Raises:
        UserError: an option out of range.
    """

    name = "egraph-mcts"

    def __init__(
        self,
        budget: int = 128,
        depth: int = 10,
        node_limit: int = 2000,
        exploration: float = EXPLORATION,
        stop_probability: float = 0.5,
        main: Method = "shared",
        final: Method = "ilp",
        reuse: bool = True,
        in_flight: int = 4,
        workers: int = 0,
        rerank: int = 5,
        share: float = 0.5,
        deployment: bool = True,
        prices: OperatorPrices | None = None,
    ) -> None:
        check_methods("egraph-mcts", main=main, final=final)
        if min(budget, node_limit, rerank, in_flight) < 1 or min(depth, workers) < 0 or exploration < 0.0:
            raise UserError(
                "egraph-mcts: budget, node_limit, rerank and in_flight must be 1 or more, depth, workers and "
                f"exploration 0 or more, got {budget}, {node_limit}, {rerank}, {in_flight}, {depth}, {workers} and "
                f"{exploration}"
            )
        if not (0.0 <= stop_probability <= 1.0 and 0.0 < share <= 1.0):
            raise UserError(
                f"egraph-mcts: stop_probability must lie in 0..1, share above 0 and at most 1, got {stop_probability} "
                f"and {share}"
            )
        self.options = ConstructionOptions(
            budget, depth, node_limit, exploration, stop_probability, main, reuse, in_flight
        )
        self.workers = workers or available_cores()
        self.final, self.rerank, self.share = final, rerank, share
        self.deployment, self.prices = deployment, prices

    def optimize(
        self, problem: Problem, budget: Budget, *, seed: int = 0, progress: Callable[[Search], None] | None = None
    ) -> OptimizationResult:
        search = Search(problem, budget, progress)
        with search.running():
            self._search(search, seed)
        return conclude(search, self.name)

    def _search(self, search: Search, seed: int) -> None:
        problem = search.problem
        egraph = from_graph(problem.model.graph)
        original = source_nodes(egraph)
        prices = NodePrices(search, self.prices)
        built, best = self._construct(search, egraph, prices, seed)
        constructions = [(built.egraph, built.applications)]
        if best is not built and self.rerank > 1:
            constructions.append((best.egraph, best.applications))
        measure_extracted(search, constructions, prices.cost, original, method=self.final, keep=self.rerank)
        if self.deployment:
            search_deployment(search)
            search_session(search)

    def _construct(
        self, search: Search, egraph: EGraph, prices: NodePrices, seed: int
    ) -> tuple[ConstructionState, ConstructionState]:
        """The e-graph that was built, and the one of least cost that any simulation passed."""
        deadline = self.share * search.allowed
        reserved = reserved_applications(search) if self.deployment else 0
        begun: dict[int, float] = {}

        def grown(state: ConstructionState) -> None:
            rule = state.applications[-1].rule if state.applications else ""
            search.growth.append(Growth(rule, state.egraph.size, state.cost))

        def move_over(move: int) -> bool:
            began = begun.setdefault(move, search.seconds)
            return search.seconds - began > MOVE_SHARE * max(0.0, deadline - began)

        construction = ConstructionSearch(
            egraph, search.problem.rewriter.rules, prices.cost, self.options, np.random.default_rng(seed),
            matches_left=lambda: applications_left(search, reserved), on_applied=search.count_applications,
            on_move=grown, seconds_left=lambda: deadline - search.seconds, move_over=move_over, workers=self.workers,
            price=prices.price, needs_timing=prices.needs_timing,
            faults=search.problem.rewriter.faults,
        )  # fmt: skip
        with construction:
            return construction.run(), construction.best
