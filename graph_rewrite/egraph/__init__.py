"""E-graphs over tensors: equality saturation with the rules of `graph_rewrite.rules`, and extraction.

Packages, lowest first: `structure` (the e-graph), `matching` (where rules match in it), `saturation` (rules applied to
it), `extract` (choosing from it, on plain arrays), `costs` (what its e-nodes cost, and the cheapest graph).
`serialization` reads and writes files, `cli` is the command line.
"""

from graph_rewrite.egraph.saturation.application import Application, apply_rule, can_match, find_matches
from graph_rewrite.egraph.saturation.saturate import Saturation, saturate
from graph_rewrite.egraph.structure.conversion import from_graph, to_graph
from graph_rewrite.egraph.structure.egraph import EGraph

__all__ = [
    "Application", "EGraph", "Saturation", "apply_rule", "can_match", "find_matches", "from_graph", "saturate",
    "to_graph",
]  # fmt: skip
