"""Merging of equal constants."""

from __future__ import annotations

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.system.deadline import check_time


class MergeConstants:
    """Let all readers of constants with equal elements read the first of them. Constants that are outputs, or that
    subgraphs know by name, stay."""

    name = "merge constants"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph with equal constants merged; the others stay, unread."""
        editor, captured = GraphEditor(graph), graph.captured()
        first: dict[str, int] = {}
        for value, constant in graph.constants.items():
            check_time()  # the digest of a constant reads all of it
            known = first.setdefault(constant.digest, value)
            if known != value and value not in captured and value not in editor.outputs:
                editor.replace_value(value, known)
        return Outcome(editor.finish()[0])
