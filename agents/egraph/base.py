"""The parts that agents on e-graphs share: prices of e-nodes, the construction as actions, and the measurement of
several graphs extracted from one e-graph."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from agents.core.base import Action, Search
from agents.searching.cost_model import OperatorPrices, Pricing, operator_prices
from graph_rewrite.egraph import Application, EGraph, to_graph
from graph_rewrite.egraph.costs import Costed, NodeCost, costed, measured_cost
from graph_rewrite.egraph.extract import METHODS, CostedEGraph, Method, extract
from graph_rewrite.egraph.saturation import MATCH_LIMIT
from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import OperatorSpec

UNPRICED_MS = 1e4
"""Price of an operator that cannot be run, or was met after the time for pricing was over: ten seconds, so that it
is chosen only where there is nothing else, and yet small enough for the tolerances of the integer program."""
HEDGES = (0.0, 0.05, 0.15, 0.5, 1.5)
"""Surcharges on e-nodes that the original graph lacks, one extraction each. The sum of operators misleads (it knows of
no fusion and no layout), and less where less is changed: the larger the surcharge, the closer to the original."""
EXTRACTION_SECONDS = 5.0
"""Most seconds of one extraction."""


def check_methods(agent: str, **methods: str) -> None:
    """Refuse unknown extraction methods.

    Raises:
        UserError: a method that does not exist; the message lists those that do.
    """
    for option, method in methods.items():
        if method not in METHODS:
            raise UserError(f"{agent}: {option} must be one of {', '.join(METHODS)}, not {method!r}")


class NodePrices:
    """The cost model of TASO for e-nodes: each distinct operator timed once in ONNX Runtime, beside the search's clock.

    Args:
        prices: what operators take alone; by default measured, kept on disk, and shared by all searches.
    """

    def __init__(self, search: Search, prices: OperatorPrices | None = None) -> None:
        self._pricing = Pricing(operator_prices(search.problem) if prices is None else prices, search)
        self.cost: NodeCost = measured_cost(self.price)

    def price(self, spec: OperatorSpec) -> float:
        """Milliseconds of an operator."""
        if spec.is_constant:
            return 0.0
        ms = self._pricing.price(spec)
        return ms if ms is not None and math.isfinite(ms) else UNPRICED_MS

    def needs_timing(self, spec: OperatorSpec) -> bool:
        """Return whether `price` would have to time the operator."""
        return not spec.is_constant and self._pricing.needs_timing(spec)


def applications_left(search: Search, reserved: int = 0) -> int | None:
    """Matches that may still be applied; None where the budget has no limit of applications."""
    limit = search.budget.applications
    return None if limit is None else max(0, limit - reserved - search.applications)


def matches_left(search: Search, reserved: int = 0) -> int:
    """Matches that the next application may try: egg's limit, or what the budget of applications has left."""
    left = applications_left(search, reserved)
    return MATCH_LIMIT if left is None else min(MATCH_LIMIT, left)


def construction_actions(applications: Sequence[Application]) -> tuple[Action, ...]:
    """Return the applications that changed an e-graph, in order. None is a candidate, so they cannot be replayed."""
    return tuple(
        Action(f"e-graph {one.rule}", one.rule, f"saturation by {one.rule}: {one.added:+d} e-nodes", one.applied)
        for one in applications
        if one.changed
    )


def extraction(actions: tuple[Action, ...], graph: Graph, how: str) -> tuple[Action, ...]:
    """The way to an extracted graph: the construction, and then the extraction."""
    return (*actions, Action(f"extract {graph.hash}", "Extraction", how, 1))


def extracted(
    egraph: EGraph,
    cost: NodeCost,
    original: frozenset[int],
    *,
    method: Method,
    keep: int,
    seconds_left: Callable[[], float],
) -> Iterator[tuple[Graph, str]]:
    """Up to `keep` different graphs of an e-graph with how they were extracted; the one of least cost comes first.

    Then the cheapest under growing surcharges on what the original lacks, then what the other methods choose.

    Args:
        original: e-nodes of the graph that the e-graph was made from.
        seconds_left: asked before every extraction.
    """
    arrays = costed(egraph, cost)
    found: set[str] = set()
    others = [other for other in METHODS if other != method]
    for hedge, by in [*((hedge, method) for hedge in HEDGES), *((0.0, other) for other in others)]:
        left = seconds_left()
        if len(found) >= keep or (found and left <= 0.0):
            return
        graph = _extract(egraph, _with_surcharge(egraph, arrays, original, hedge), by, left)
        if graph.hash not in found:
            found.add(graph.hash)
            yield graph, f"{by} extraction" + (f", changes at {1.0 + hedge:g} times their cost" if hedge else "")


def source_nodes(egraph: EGraph) -> frozenset[int]:
    """The e-nodes of an e-graph that no rule was applied to yet."""
    return frozenset(range(len(egraph.node_op)))


def measure_extracted(
    search: Search,
    constructions: Sequence[tuple[EGraph, Sequence[Application]]],
    cost: NodeCost,
    original: frozenset[int],
    *,
    method: Method,
    keep: int,
) -> None:
    """Measure up to `keep` different graphs extracted from each of some e-graphs, as far as the budget goes.

    Args:
        constructions: e-graphs made from the original, each with the applications that built it.
        original: e-nodes that all of them began with.
        keep: 1 leaves the choice to the cost model; with more the original is measured too.
    """
    if search.can_measure and keep > 1:
        # Where the cost model was wrong about all of them, deployment search still has something to begin with.
        search.measure(search.problem.model.graph, ())

    def left() -> float:
        return min(EXTRACTION_SECONDS, search.allowed - search.seconds)

    for egraph, applications in constructions:
        actions = construction_actions(applications)
        if not actions:
            continue
        for graph, how in extracted(egraph, cost, original, method=method, keep=keep, seconds_left=left):
            if not search.can_measure:
                return
            search.measure(graph, extraction(actions, graph, how))


def _with_surcharge(egraph: EGraph, arrays: Costed, original: frozenset[int], hedge: float) -> Costed:
    if hedge == 0.0:
        return arrays
    # An e-node of the original may have been merged with an equal one that a rule had made.
    standing = {other for node in original if (other := egraph.find_equal(node)) is not None} | original
    graph = arrays.graph
    costs = [
        cost if node in standing else cost * (1.0 + hedge)
        for node, cost in zip(arrays.nodes, graph.costs, strict=True)
    ]  # fmt: skip
    return Costed(CostedEGraph(costs, graph.children, graph.classes, graph.roots), arrays.nodes, arrays.classes)


def _extract(egraph: EGraph, arrays: Costed, method: Method, seconds: float) -> Graph:
    limit = min(EXTRACTION_SECONDS, max(0.1, seconds))
    return to_graph(egraph, arrays.choice(extract(arrays.graph, method, time_limit=limit)))
