"""Graphs that nobody needs any more are released."""

from __future__ import annotations

import gc
import weakref

from graph_rewrite import Graph, Rewriter
from graph_rewrite.ir.graph import KEPT_ANCESTORS
from graph_rewrite.ir.memo import MemoKey
from graph_rewrite.onnx_files.assembly import model
from graph_rewrite.rules import find_rule


def test_a_chain_of_edits_keeps_few_ancestors() -> None:
    """Sites of the first graph stay listed to the end, and do not keep it."""
    moves = "".join(f"t{i} = Identity(t{i - 1})  " for i in range(1, 60))
    graph = model(f"(float[2,3] x) => (y) {{ t0 = Relu(x)  {moves} y = Neg(t59) }}")
    rewriter = Rewriter([find_rule("DropIdentity")], granularity="site", deployment=False)
    ancestors: list[weakref.ref[Graph]] = []
    for left in range(59, 0, -1):
        found = rewriter.candidates(graph)
        assert len(found) == left
        graph, before = found[0].apply(), graph
        ancestors.append(weakref.ref(before))
        del found, before
    gc.collect()
    alive = [ancestor() is not None for ancestor in ancestors]
    assert not any(alive[:-KEPT_ANCESTORS])
    assert all(alive[-KEPT_ANCESTORS:])


def test_what_is_attached_goes_with_its_key() -> None:
    graph: Graph = model("(float[2,3] x) => (y) { y = Relu(x) }")
    mine, other = MemoKey[int]("number"), MemoKey[int]("number")
    assert graph.memo.put(mine, 3) == 3
    assert (graph.memo.get(mine), graph.memo.get(other)) == (3, None)
    graph.memo.drop(mine)
    assert graph.memo.get(mine) is None

    class Held:
        """Something attached."""

    held = Held()
    gone, key = weakref.ref(held), MemoKey[Held]("held")
    graph.memo.put(key, held)
    del held
    assert gone() is not None
    del key
    gc.collect()
    assert gone() is None
