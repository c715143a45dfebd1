"""The cheapest graph in an e-graph: the e-graph as arrays to extract from, and the choice as a graph again."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.egraph.costs.node_costs import NodeCost, cost_of, unit_cost
from graph_rewrite.egraph.extract.costed import CostedEGraph, Extraction
from graph_rewrite.egraph.extract.methods import Method, extract
from graph_rewrite.egraph.structure.conversion import to_graph
from graph_rewrite.egraph.structure.egraph import EGraph
from graph_rewrite.ir.graph import Graph


@dataclass(frozen=True, slots=True)
class Costed:
    """The e-nodes and classes that the roots of an e-graph can reach, and the arrays that number them."""

    graph: CostedEGraph
    nodes: list[int]
    classes: list[int]

    def choice(self, extraction: Extraction) -> dict[int, int]:
        """An extraction's choice by the e-graph's own numbers."""
        return {self.classes[cls]: self.nodes[node] for cls, node in extraction.choice.items()}


def costed(egraph: EGraph, cost: NodeCost = unit_cost) -> Costed:
    """Return the classes below the roots, with the cost of each of their members. A class known before run time has its
    constant as its only member.

    Raises:
        ValueError: the e-graph has no roots.
    """
    if not egraph.roots:
        raise ValueError("this e-graph has no roots: nothing is to be extracted")
    position: dict[int, int] = {}
    classes: list[int] = []
    nodes: list[int] = []
    members: list[list[int]] = []

    def number(cls: int) -> int:
        if cls not in position:
            position[cls] = len(classes)
            classes.append(cls)
        return position[cls]

    roots = tuple(dict.fromkeys(map(number, egraph.canonical_roots())))
    children: list[tuple[int, ...]] = []
    for cls in classes:  # grows as operands are found
        own = egraph.members(cls)
        if cls in egraph.constants:
            own = [node for node in own if egraph.operator(node).kind == "constant"][:1]
        members.append(list(range(len(nodes), len(nodes) + len(own))))
        nodes.extend(own)
        children.extend(tuple(number(arg) for arg in egraph.args(node) if arg >= 0) for node in own)
    costs = [cost_of(egraph, node, cost) for node in nodes]
    return Costed(CostedEGraph(costs, children, members, roots), nodes, classes)


def extract_graph(
    egraph: EGraph, cost: NodeCost = unit_cost, method: Method = "dag", *, time_limit: float = 60.0
) -> tuple[Graph, Extraction]:
    """Return the cheapest graph that `method` finds in an e-graph made from a graph, and its extraction."""
    arrays = costed(egraph, cost)
    extraction = extract(arrays.graph, method, time_limit=time_limit)
    return to_graph(egraph, arrays.choice(extraction)), extraction
