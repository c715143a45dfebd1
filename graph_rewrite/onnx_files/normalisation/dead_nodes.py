"""Removal of what no output needs."""

from __future__ import annotations

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.operators.known import is_known


class RemoveDeadNodes:
    """Remove nodes and constants that no output depends on. Opaque and unknown nodes stay: they may have effects."""

    name = "remove dead nodes"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph without dead nodes and values."""
        editor, count = GraphEditor(graph), 0
        live = set(editor.outputs)
        for node in reversed(graph.order()):
            if is_known(node) and not any(editor.consumers.get(value) or value in live for value in node.outputs):
                editor.remove(node)
                editor.forget(node.outputs)
                count += 1
        editor.forget(list(editor.constants))
        editor.forget([value for value in editor.types if value not in editor.constants])
        return Outcome(editor.finish()[0], count)
