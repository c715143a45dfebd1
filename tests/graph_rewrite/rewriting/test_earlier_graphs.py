"""Knowledge of each node, taken over from earlier graphs."""

from __future__ import annotations

import pytest

from graph_rewrite import Graph, Rewriter
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.earlier_graphs import of_each_node
from tests.graph_rewrite.rewriting.sample_rules import DropIdentity, DropNegOfNeg
from tests.graph_rewrite.rules.checking import model

TEXT = (
    "(float[3] x) => (y, z) { a = Identity(x)  b = Neg(a)  c = Neg(b)  d = Abs(c)  e = Identity(d)  y = Relu(e)"
    "  z = Exp(x) }"
)


def inputs_of(graph: Graph, node: Node) -> tuple[str | None, ...]:
    """The makers of a node's inputs: what a rewrite before the node changes."""
    makers = [graph.node_of(value) for value in node.inputs if value is not None]
    return tuple(None if maker is None else maker.op for maker in makers)


def rewritten(graph: Graph, times: int) -> Graph:
    for _ in range(times):
        graph = Rewriter([DropIdentity(), DropNegOfNeg()], "site", False).candidates(graph)[0].apply()
    return graph


@pytest.mark.parametrize("times", [1, 2, 3])
def test_only_changed_nodes_are_computed_and_all_are_right(times: int) -> None:
    key, computed = MemoKey[dict[int, tuple[str | None, ...]]]("inputs"), list[str]()
    start = model(TEXT)

    def look(graph: Graph) -> dict[int, tuple[str | None, ...]]:
        def compute(node: Node) -> tuple[str | None, ...]:
            computed.append(node.op)
            return inputs_of(graph, node)

        return of_each_node(graph, key, compute)

    look(start)
    computed.clear()
    after = rewritten(start, times)  # graphs in between are not looked at
    assert look(after) == {node.id: inputs_of(after, node) for node in after.nodes.values()}
    assert 0 < len(computed) < len(after.nodes)
    assert "Identity" not in computed
    computed.clear()
    look(after)
    assert not computed
