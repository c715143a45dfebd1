"""The passes of the normalisation, one after another."""

from __future__ import annotations

from dataclasses import dataclass

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Pass
from graph_rewrite.onnx_files.normalisation.constant_folding import FoldConstants
from graph_rewrite.onnx_files.normalisation.constant_merging import MergeConstants
from graph_rewrite.onnx_files.normalisation.dead_nodes import RemoveDeadNodes
from graph_rewrite.onnx_files.normalisation.node_merging import MergeNodes
from graph_rewrite.onnx_files.normalisation.operator_set import OperatorSet
from graph_rewrite.onnx_files.normalisation.static_inputs import StaticInputs
from graph_rewrite.onnx_files.normalisation.unknown_shapes import UnknownShapes

PASSES: tuple[Pass, ...] = (
    StaticInputs(), OperatorSet(), MergeConstants(), FoldConstants(), MergeNodes(), RemoveDeadNodes(), UnknownShapes(),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class NormalisationReport:
    """The result of `normalise`: numbers of nodes replaced by constants, merged with an equal one, and removed because
    no output needs them."""

    from_opset: int
    to_opset: int
    folded: int = 0
    merged: int = 0
    removed: int = 0
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        opset = f"opset {self.from_opset}"
        if self.to_opset != self.from_opset:
            opset += f" -> {self.to_opset}"
        done = f"{opset}; nodes folded: {self.folded}, merged: {self.merged}, removed: {self.removed}"
        return "\n".join([done, *(f"note: {note}" for note in self.notes)])


def normalise(graph: Graph) -> tuple[Graph, NormalisationReport]:
    """Return the same computation in opset 23 (or the newer one it is in), folded, without duplicates and dead nodes,
    and with the types of all values that onnx's inference can tell. `graph` is not changed.

    Raises:
        SymbolicShapeError: an input has a dimension without a fixed size.
    """
    result = graph
    counts: dict[str, int] = {}
    notes: list[str] = []
    for step in PASSES:
        outcome = step.run(result)
        result, counts[step.name] = outcome.graph, outcome.count
        notes.extend(outcome.notes)
    folded, merged, removed = (counts[kind.name] for kind in (FoldConstants, MergeNodes, RemoveDeadNodes))
    return result, NormalisationReport(graph.opset, result.opset, folded, merged, removed, tuple(notes))
