"""TASO's cost model for search: a graph costs the sum of its operators, updated from rewrite to rewrite."""

from __future__ import annotations

import atexit
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from agents.core.base import Search
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.latency import (
    BaselineError,
    Clock,
    MeasurementCache,
    OperatorCostMeter,
    OperatorSpec,
    unblocked_time,
)
from graph_rewrite.latency.graph_operators import operator_of, operators_of
from graph_rewrite.rewriting.earlier_graphs import of_each_node
from graph_rewrite.task.problem import Problem

GraphCost = Callable[[Graph], float]
"""Milliseconds of a graph by a cost model; infinite where an operator cannot be run."""


@dataclass(eq=False)
class OperatorPrices:
    """Times of operators alone, each distinct one timed once.

    Prices belong to the machine and not to a search: what the timing takes is not part of a search's seconds. Nor may
    it go on for ever: see `pricing_seconds`.

    Args:
        time_alone: milliseconds of an operator alone; infinite where it cannot be run.
    """

    time_alone: Callable[[OperatorSpec], float]
    is_stored: Callable[[OperatorSpec], bool] = lambda spec: False
    """Tells whether `time_alone` answers without timing anything."""
    seconds: float = 0.0
    """Seconds of all timings so far."""
    by_node: MemoKey[dict[int, float]] = field(default_factory=lambda: MemoKey("operator prices"), repr=False)
    """Key under which graphs keep the milliseconds of their nodes."""
    _known: dict[str, float] = field(default_factory=dict, repr=False)

    def known(self, spec: OperatorSpec) -> float | None:
        """Milliseconds of an operator where it was timed before."""
        return self._known.get(spec.key)

    def price(self, spec: OperatorSpec, search: Search | None = None) -> float:
        """Milliseconds of an operator. Of the clock of `search` this takes nothing."""
        ms = self._known.get(spec.key)
        if ms is None:
            begin = unblocked_time()
            ms = self._known[spec.key] = self.time_alone(spec)
            taken = unblocked_time() - begin
            self.seconds += taken
            if search is not None:
                search.exclude(taken)
        return ms


PRICING_SHARE = 0.5
"""Part of a search's seconds that may be spent on pricing beside them, the first time that operators are met."""


class Pricing:
    """Prices as one search sees them: what its clock does not count, and until when new operators are timed.

    Args:
        prices: what is known of the machine.
        search: whose clock does not count the timings; None for one without limits.
    """

    def __init__(self, prices: OperatorPrices, search: Search | None = None) -> None:
        self.prices, self._search = prices, search
        self._most = math.inf if search is None else PRICING_SHARE * search.budget.seconds
        self._began = prices.seconds

    def price(self, spec: OperatorSpec) -> float | None:
        """Milliseconds of an operator; infinite where it cannot be run, None where it was not timed before and the
        time for pricing is over."""
        known = self.prices.known(spec)
        if known is not None:
            return known
        return None if self._is_over() else self.prices.price(spec, self._search)

    def needs_timing(self, spec: OperatorSpec) -> bool:
        """Return whether `price` would have to time an operator."""
        return self.prices.known(spec) is None and not self._is_over() and not self.prices.is_stored(spec)

    def _is_over(self) -> bool:
        return self.prices.seconds - self._began >= self._most


class SumOfOperators:
    """The cost of graphs as one search sees it. Callable: graph -> milliseconds.

    Only operators that a rewrite brought in or connected otherwise are looked at; the rest is taken over from the
    graph before. Sums are exact to rounding, so equal operators give equal costs in any order. A graph with an
    operator that came too late to be priced costs infinitely much.
    """

    def __init__(self, prices: OperatorPrices, search: Search | None = None) -> None:
        self._prices, self._pricing = prices, Pricing(prices, search)
        self._came_late = False

    def __call__(self, graph: Graph) -> float:
        return math.fsum(self.by_node(graph).values())

    def by_node(self, graph: Graph) -> dict[int, float]:
        """Milliseconds per node id; nodes that cannot be timed alone cost 0."""
        self._came_late = False
        found = of_each_node(graph, self._prices.by_node, partial(self._price, graph))
        if self._came_late:  # a later search has time of its own
            graph.memo.drop(self._prices.by_node)
        return found

    def _price(self, graph: Graph, node: Node) -> float:
        spec = operator_of(graph, node)
        if spec is None or spec.is_constant:
            return 0.0
        ms = self._pricing.price(spec)
        self._came_late |= ms is None
        return math.inf if ms is None else ms


def operator_prices(problem: Problem, clock: Clock = "wall") -> OperatorPrices:
    """Prices measured in ONNX Runtime for a problem's deployment, shared by all searches of the process and kept on
    disk by operator, deployment, clock, machine and version of ONNX Runtime.

    The deployment is taken plainly: what the runtime does to a whole graph, a sum of operators cannot see.

    Args:
        problem: the problem.
        clock: `wall`, or `cpu` for what one thread on the CPU computes, whatever else the machine runs.
    """
    key = (problem.deployment.plain().key, problem.workspace, clock)
    if key not in _shared:
        problem.workspace.mkdir(parents=True, exist_ok=True)
        meter = OperatorCostMeter(
            problem.model.original, operators_of, problem.deployment, workspace=problem.workspace,
            cache=MeasurementCache(), clock=clock,
        )  # fmt: skip
        _meters.append(meter)
        _shared[key] = OperatorPrices(lambda spec: meter.cost(spec).ms, meter.is_known)
    return _shared[key]


def cost_model_speedup(problem: Problem, graph: Graph) -> float | None:
    """Return the speed-up of a graph over the original by the sum of operators; None where one of them has no sum."""
    cost = SumOfOperators(operator_prices(problem))
    try:
        before, after = cost(problem.model.original), cost(graph)
    except BaselineError:
        return None
    return before / after if 0.0 < after < math.inf and math.isfinite(before) else None


_shared: dict[tuple[str, Path, Clock], OperatorPrices] = {}
_meters: list[OperatorCostMeter] = []


@atexit.register
def close_operator_meters() -> None:
    """End the worker processes; they start again when needed."""
    for meter in _meters:
        meter.close()
