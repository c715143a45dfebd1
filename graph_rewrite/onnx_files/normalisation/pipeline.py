"""The passes of the normalisation, one after another."""

from __future__ import annotations

from dataclasses import dataclass

import onnx

from graph_rewrite.errors import UserError
from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.normalisation.base import Pass
from graph_rewrite.onnx_files.normalisation.constant_folding import FoldConstants
from graph_rewrite.onnx_files.normalisation.constant_merging import MergeConstants
from graph_rewrite.onnx_files.normalisation.dead_nodes import RemoveDeadNodes
from graph_rewrite.onnx_files.normalisation.function_calls import WriteOutFunctions
from graph_rewrite.onnx_files.normalisation.known_branches import TakeKnownBranches
from graph_rewrite.onnx_files.normalisation.node_merging import MergeNodes
from graph_rewrite.onnx_files.normalisation.operator_set import INTERNAL_OPSET, OperatorSet
from graph_rewrite.onnx_files.normalisation.static_inputs import StaticInputs
from graph_rewrite.onnx_files.normalisation.unknown_shapes import UnknownShapes
from graph_rewrite.system.deadline import check_time
from graph_rewrite.system.garbage_collector import no_garbage_collection

_SIMPLIFYING: tuple[Pass, ...] = (
    MergeConstants(), FoldConstants(), TakeKnownBranches(), MergeNodes(), RemoveDeadNodes(), UnknownShapes(),
)  # fmt: skip
PASSES: tuple[Pass, ...] = (StaticInputs(), WriteOutFunctions(), OperatorSet(), *_SIMPLIFYING)


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


def normalise(
    graph: Graph, target_opset: int | None = None, libraries: tuple[str, ...] = (), usual_opset: int = INTERNAL_OPSET
) -> tuple[Graph, NormalisationReport]:
    """Return the same computation in a recent operator set, folded, without duplicates and dead nodes, and with the
    types of all values that onnx's inference can tell. `graph` is not changed.

    Args:
        target_opset: the operator set to convert to; by default `usual_opset`. A graph in a newer one stays there. So
            does one whose operators have no equivalent that onnx knows; and where ONNX Runtime cannot run some operator
            in the target, the graph gets the nearest operator set below it in which it can.
        libraries: libraries with operators of custom domains, for the process in which that is tried.
        usual_opset: the operator set that rules are written for, or what the runtime has operators of.

    Raises:
        UserError: `target_opset` is older than the graph's operator set, or unknown.
        SymbolicShapeError: an input has a dimension without a fixed size.
        OutOfTime: the time limit of the run is reached.
    """
    if target_opset is not None:
        _check_target(graph, target_opset)
    target = usual_opset if target_opset is None else target_opset
    passes: tuple[Pass, ...] = (
        StaticInputs(), WriteOutFunctions(), OperatorSet(target, libraries), *_SIMPLIFYING
    )  # fmt: skip
    result = graph
    counts: dict[str, int] = {}
    notes: list[str] = []
    with no_garbage_collection():
        for step in passes:
            check_time()
            outcome = step.run(result)
            result, counts[step.name] = outcome.graph, outcome.count
            notes.extend(outcome.notes)
    folded, merged, removed = (counts[kind.name] for kind in (FoldConstants, MergeNodes, RemoveDeadNodes))
    return result, NormalisationReport(graph.opset, result.opset, folded, merged, removed, tuple(notes))


def _check_target(graph: Graph, target: int) -> None:
    newest = onnx.defs.onnx_opset_version()
    if target > newest:
        raise UserError(f"opset {target} is unknown to onnx {onnx.__version__}, whose newest is {newest}")
    if target < graph.opset:
        raise UserError(
            f"the model is in opset {graph.opset} and cannot be converted down to {target}; export it in opset {target}"
        )
