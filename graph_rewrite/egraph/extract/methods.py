"""The extraction methods by name."""

from __future__ import annotations

import time
from typing import Literal, get_args

from graph_rewrite.egraph.extract.costed import CostedEGraph, Extraction
from graph_rewrite.egraph.extract.dag import dag_choice
from graph_rewrite.egraph.extract.shared import shared_choice
from graph_rewrite.egraph.extract.tree import tree_costs
from graph_rewrite.system.extras import require

Method = Literal["tree", "shared", "dag", "ilp"]
METHODS: tuple[Method, ...] = get_args(Method)


def extract(graph: CostedEGraph, method: Method = "dag", *, time_limit: float = 60.0) -> Extraction:
    """A choice of e-nodes that computes the roots; always acyclic.

    By true cost, "ilp" is never worse than "dag", and "dag" never worse than "shared" and "tree".

    Args:
        method: "tree", egg's greedy extraction; "shared", the cost function of Hartmann et al. (PACT'24); "dag", local
            improvement of the true cost; "ilp", optimal with a proof, or as near as the time limit allows.
        time_limit: seconds, for the improvement of "dag" and for the solver of "ilp".

    Raises:
        NoExtraction: a root cannot be computed.
        MissingLibraryError: "ilp" without HiGHS.
        ValueError: there is no such method.
    """
    if method not in METHODS:
        raise ValueError(f"there is no extraction method {method!r}; there are {', '.join(METHODS)}")
    started = time.perf_counter()
    tree = tree_costs(graph)
    gap: float | None = None
    if method == "tree":
        choice, estimate = tree.chosen(), sum(tree.costs[root] for root in dict.fromkeys(graph.roots))
    elif method == "shared":
        choice, estimate = shared_choice(graph, tree)
    else:
        limit = time_limit if method == "dag" else time_limit / 4
        choice = dag_choice(graph, tree, limit)
        if method == "ilp":
            require("Extraction by an integer program", "highspy")
            # Imported here so that extraction without the solver does not load it.
            from graph_rewrite.egraph.extract.ilp import ilp_choice

            solved = ilp_choice(graph, tree, choice, time_limit - (time.perf_counter() - started))
            choice, gap = solved.choice, solved.gap
        estimate = graph.dag_cost(choice)
    choice = graph.restricted(choice)
    cycle = graph.cycle(choice)
    return Extraction(
        method, graph.dag_cost(choice), choice, cycle is None, gap, time.perf_counter() - started, estimate
    )
