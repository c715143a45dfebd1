"""Conversion to the operator set that rules are written for."""

from __future__ import annotations

from collections.abc import Iterator

from graph_rewrite.ir.graph import Graph
from graph_rewrite.onnx_files.kernel_support import doubts, first_that_runs
from graph_rewrite.onnx_files.normalisation.base import Outcome
from graph_rewrite.onnx_files.opset import ConversionError, convert_opset

INTERNAL_OPSET = 23
"""The first operator set with `Attention`. Models in a newer one stay there."""


class OperatorSet:
    """Convert a graph in an older operator set to `target`, or as near to it as ONNX Runtime can run it; note why it
    stays below.

    Args:
        libraries: libraries with operators of custom domains, for the process that tries what ONNX Runtime runs.
        tried: ONNX Runtime is known to run the target.
    """

    name = "operator set"

    def __init__(self, target: int = INTERNAL_OPSET, libraries: tuple[str, ...] = (), *, tried: bool = False) -> None:
        self._target = target
        self._libraries = libraries
        self._tried = tried

    def run(self, graph: Graph) -> Outcome:
        """Return the graph in the target operator set where that is possible."""
        if graph.opset >= self._target:
            return Outcome(graph)
        try:
            highest = convert_opset(graph, self._target)
        except ConversionError as error:
            return Outcome(graph, notes=(f"stays in opset {graph.opset}: {error}",))
        doubtful = frozenset[str]() if self._tried else doubts(graph, highest)
        # Whether ONNX Runtime knows an operator set newer than ours at all, its list of kernels does not tell.
        if self._tried or (not doubtful and self._target <= INTERNAL_OPSET):
            return Outcome(highest)
        running = (
            first_that_runs([highest, *_lower(graph, self._target)], doubtful, graph.opset, self._libraries) or graph
        )
        if running is highest:
            return Outcome(highest)
        kept = "stays in" if running is graph else "is raised to"
        return Outcome(
            running,
            notes=(f"{kept} opset {running.opset}: ONNX Runtime cannot run all its operators in {self._target}",),
        )


def _lower(graph: Graph, target: int) -> Iterator[Graph]:
    """Yield the graph in the operator sets between its own and the target, from the highest down."""
    for version in range(target - 1, graph.opset, -1):
        try:
            yield convert_opset(graph, version)
        except ConversionError:
            continue
