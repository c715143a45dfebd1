"""Merging of nodes that compute the same."""

from __future__ import annotations

from typing import Any

from graph_rewrite.ir.editor import GraphEditor
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.node import Node
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.operators.known import is_repeatable
from graph_rewrite.system.deadline import check_time


class MergeNodes:
    """Let one node take the place of all later ones that apply the same operator to the same operands. Random
    operators, unknown ones, and nodes whose results subgraphs know by name stay."""

    name = "merge nodes"

    def run(self, graph: Graph) -> Outcome:
        """Return the graph with equal nodes merged."""
        editor, captured, merged = GraphEditor(graph), graph.captured(), 0
        constants, names = graph.constants, graph.names
        seen: dict[tuple[Any, ...], Node] = {}
        for old in graph.order():
            check_time()
            node = editor.nodes[old.id]
            if not is_repeatable(node) or not captured.isdisjoint(node.outputs):
                continue
            inputs = tuple(constants[v].digest if v is not None and v in constants else v for v in node.inputs)
            left_out = tuple(names.get(v, "").startswith("\0") for v in node.outputs)
            first = seen.setdefault((node.signature, inputs, left_out), node)
            if first is not node:
                for value, kept in zip(node.outputs, first.outputs, strict=True):
                    editor.replace_value(value, kept)
                editor.remove(node)
                editor.forget(node.outputs)
                merged += 1
        return Outcome(editor.finish()[0], merged)
