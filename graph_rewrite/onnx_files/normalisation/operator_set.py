"""Conversion to the operator set that rules are written for."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.onnx_files.opset import ConversionError, convert_opset

INTERNAL_OPSET = 23
"""The first operator set with `Attention`. Models in a newer one stay there."""


class OperatorSet:
    """Convert a graph in an older operator set to `INTERNAL_OPSET`, or note why it stays in its own."""

    name = "operator set"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph in the internal operator set where that is possible."""
        if graph.opset >= INTERNAL_OPSET:
            return Outcome(graph)
        try:
            return Outcome(convert_opset(graph, INTERNAL_OPSET))
        except ConversionError as error:
            return Outcome(graph, notes=(f"stays in opset {graph.opset}: {error}",))
