"""Branches of If that are known once constants are folded."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.inlining.branches import branches_taken
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.onnx_files.normalisation.constant_folding import FoldConstants
from graph_rewrite.operators.inference import infer
from graph_rewrite.operators.standard_types import TypeInferenceError


class TakeKnownBranches:
    """Put the branch that is taken in place of each If whose condition is a constant, and fold what becomes one then,
    until no condition is known any more.

    An If also hides shapes. Where an operator behind it turns out to be one that cannot take its operands by the
    standard, which ONNX Runtime overlooks as long as their shapes are unknown, all stays as it is.
    """

    name = "known branches"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph without the Ifs that can be decided now."""
        result, count = graph, 0
        while True:
            result, taken = branches_taken(result)
            if not taken:
                break
            count += taken
            result = FoldConstants().run(result).graph
        if not count:
            return Outcome(graph)
        if _refused(result) - _refused(graph):
            return Outcome(graph, notes=("an If of a known condition stays: operators behind it break the standard",))
        number = "1 If is" if count == 1 else f"{count} Ifs are"
        return Outcome(result, count, (f"{number} replaced by the branch that is always taken",))


def _refused(graph: Graph) -> set[int]:
    """Return the operators that cannot take their operands."""
    found = set()
    for node in graph.nodes.values():
        inputs = [None if v is None else (graph.types[v], graph.constants.get(v)) for v in node.inputs]
        try:
            if not node.opaque:
                infer(node.op, node.domain, node.attrs, inputs, len(node.outputs), graph.opset, node.signature)
        except TypeInferenceError:
            found.add(node.id)
    return found
