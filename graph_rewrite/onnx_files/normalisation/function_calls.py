"""Calls of functions that the model brings along, written out."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.inlining.functions import written_out
from graph_rewrite.onnx_files.normalisation.base import Outcome


class WriteOutFunctions:
    """Put the operators of a model's functions in place of their calls, where rules and types then reach them."""

    name = "function calls"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph without the calls that can be written out."""
        result, count = written_out(graph)
        calls = f"{count} call of a function is" if count == 1 else f"{count} calls of functions are"
        return Outcome(result, count, (f"{calls} written out",) if count else ())
