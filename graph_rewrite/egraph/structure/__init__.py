"""The e-graph: e-nodes in e-classes, their operators and constants, cycles, and conversion from and to graphs.

`egraph` holds the data structure, on top of `classes` (e-nodes under union-find) and `operators`. `arrays` and
`kernels` look at a whole e-graph as flat arrays, in machine code.
"""

from graph_rewrite.egraph.structure.classes import ABSENT, DEAD, FILTERED, LIVE, Args
from graph_rewrite.egraph.structure.conversion import Choice, from_graph, to_graph
from graph_rewrite.egraph.structure.egraph import ANY, EGraph
from graph_rewrite.egraph.structure.fingerprint import fingerprint
from graph_rewrite.egraph.structure.operators import CONSTANT, OUTPUT, Operator, OperatorTable

__all__ = [
    "ABSENT", "ANY", "CONSTANT", "DEAD", "FILTERED", "LIVE", "OUTPUT", "Args", "Choice", "EGraph", "Operator",
    "OperatorTable", "fingerprint", "from_graph", "to_graph",
]  # fmt: skip
