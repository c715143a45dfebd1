"""A note on results whose shapes are not known."""

from __future__ import annotations

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Outcome


class UnknownShapes:
    """Note the operators with results of unknown shape, to which no rule applies; the graph stays as it is."""

    name = "unknown shapes"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph itself."""
        untyped: dict[str, None] = {}
        for node in graph.nodes.values():
            if any(graph.types[v] is None and graph.consumers.get(v) for v in node.outputs):
                untyped[f"{node.domain}::{node.op}" if node.domain else node.op] = None
        note = f"no rule applies to results of unknown shape: of {', '.join(untyped)}"
        return Outcome(graph, notes=(note,) if untyped else ())
