"""E-graphs over tensors: equality saturation with the rules of `graph_rewrite.rules`, and extraction."""

from graph_rewrite.egraph.apply import Application, apply_rule, can_match, find_matches
from graph_rewrite.egraph.convert import from_graph, to_graph
from graph_rewrite.egraph.core import EGraph
from graph_rewrite.egraph.saturate import Saturation, saturate

__all__ = [
    "Application", "EGraph", "Saturation", "apply_rule", "can_match", "find_matches", "from_graph", "saturate",
    "to_graph",
]  # fmt: skip
