"""The orders in which a file may list the nodes of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.runtime import NODE_ORDER

Arrange = Callable[[Sequence[Node]], Sequence[Node]]
"""Puts the producers of a node's inputs into the order in which they are visited."""


def listed_nodes(graph: Graph) -> list[Node]:
    """Return the nodes in the topological order in which a file lists them: that of `graph.order()`, or the one that
    the graph asks for. ONNX Runtime breaks ties by the place of a node in the file, and so runs branches in turn.

    Raises:
        ValueError: the graph asks for an order that there is not.
    """
    asked = dict(graph.session_settings).get(NODE_ORDER)
    return graph.order() if asked is None else _depth_first(graph, order_named(asked))


def order_named(name: object) -> Arrange:
    """Return the order of a name, one of `NODE_ORDERS`.

    Raises:
        ValueError: there is no such order.
    """
    found = NODE_ORDERS.get(str(name))
    if found is None:
        raise ValueError(f"no {NODE_ORDER} is named {name!r}; there are {', '.join(NODE_ORDERS)}")
    return found


def _depth_first(graph: Graph, arrange: Arrange) -> list[Node]:
    """Return the nodes as a walk from the outputs leaves them: each right behind what it needs.

    Args:
        arrange: the order of visits.
    """
    ends = [node for value in graph.outputs if (node := graph.node_of(value)) is not None]
    listed, entered = dict[int, Node](), set[int]()
    # No output needs some opaque nodes of some models; they stay, behind all others.
    for root in (*ends, *graph.order()):
        stack = [(root, False)]
        while stack:
            node, is_left = stack.pop()
            if is_left:
                listed[node.id] = node
            elif node.id not in entered:
                entered.add(node.id)
                stack.append((node, True))
                makers = (graph.node_of(value) for value in node.inputs if value is not None)
                visits = arrange([maker for maker in makers if maker is not None])
                stack.extend((maker, False) for maker in reversed(visits))
    return list(listed.values())


NODE_ORDERS: Mapping[str, Arrange] = {
    "last_input_first": lambda makers: makers[::-1],
    "first_input_first": lambda makers: makers,
}
"""The orders that a graph may ask for: walks from the outputs, by the order in which inputs are visited."""
