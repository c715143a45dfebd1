"""The cost of an e-node alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.latency import OperatorSpec
from graph_rewrite.latency.graph_operators import has_values, spec_of

NodeCost = Callable[[EGraph, int], float]
"""The cost of an e-node alone, by e-graph and e-node; asked for applications that depend on more than constants."""


def unit_cost(egraph: EGraph, node: int) -> float:
    """1 for every operator: the size of the graph."""
    return 1.0


def measured_cost(price: Callable[[OperatorSpec], float]) -> NodeCost:
    """Return the cost model of TASO: the time that each operator takes alone, as `price` says it.

    `price` is for instance `lambda spec: meter.cost(spec).ms` with an `OperatorCostMeter`. Operators that cannot be
    timed alone cost nothing.
    """

    specs: dict[tuple[Any, ...], OperatorSpec | None] = {}

    def cost(egraph: EGraph, node: int) -> float:
        operator = egraph.operators.entries[egraph.node_op[node]]
        args, outputs = egraph.args(node), egraph.outputs_of(node)
        types = [None if cls < 0 else egraph.types[cls] for cls in (*args, *outputs)]
        constants = {i: egraph.constants[cls] for i, cls in enumerate(args) if cls in egraph.constants}
        shown = tuple((i, c.digest if has_values(operator.op, i, c) else "") for i, c in constants.items())
        key = (operator.domain, operator.op, operator.signature, egraph.opset, *types, *shown)
        if operator.unique:
            key = (*key, operator.number)
        if key not in specs:
            untyped = any(t is None and cls >= 0 for t, cls in zip(types, (*args, *outputs), strict=True))
            specs[key] = None if operator.opaque or untyped else spec_of(
                operator.op, operator.domain, operator.attrs, types[: len(args)], types[len(args) :], constants,
                egraph.opset,
            )  # fmt: skip
        spec = specs[key]
        return 0.0 if spec is None else price(spec)

    return cost


def cost_of(egraph: EGraph, node: int, cost: NodeCost) -> float:
    """Return the cost that an e-node adds to a graph: leaves, and applications to constants alone, cost nothing at run
    time."""
    if egraph.operator(node).kind != "operator":
        return 0.0
    args = egraph.args(node)
    if args and all(arg < 0 or arg in egraph.constants for arg in args) and not egraph.operator(node).unique:
        return 0.0
    return cost(egraph, node)
