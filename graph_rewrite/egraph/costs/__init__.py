"""Costs of e-nodes, extraction of the cheapest graph by them, and costs that follow a growing e-graph."""

from graph_rewrite.egraph.costs.graph_extraction import Costed, costed, extract_graph
from graph_rewrite.egraph.costs.node_costs import NodeCost, cost_of, measured_cost, unit_cost
from graph_rewrite.egraph.costs.shared_tracker import SharedCostTracker
from graph_rewrite.egraph.costs.tree_tracker import TreeCostTracker

__all__ = [
    "Costed", "NodeCost", "SharedCostTracker", "TreeCostTracker", "cost_of", "costed", "extract_graph",
    "measured_cost", "unit_cost",
]  # fmt: skip
