"""Lanes: one model at several bindings of its symbolic dimensions, each with the graph that search would start from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.graph import Graph
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.onnx_files.loading import infer_types
from graph_rewrite.onnx_files.normalisation.base import Pass
from graph_rewrite.onnx_files.normalisation.constant_folding import FoldConstants
from graph_rewrite.onnx_files.normalisation.operator_set import OperatorSet
from graph_rewrite.onnx_files.normalisation.pipeline import PASSES

Shapes = Mapping[str, tuple[int, ...]]


class NotGeneralError(Exception):
    """The rewrites cannot be carried over to other shapes; the message says why."""


@dataclass(slots=True)
class Lane:
    """A model at one binding. `nodes` and `values` lead from the graph at the binding that was searched to this one."""

    symbols: Mapping[str, int]
    shapes: Shapes
    graph: Graph
    unfolded: Graph
    """The graph before constants were folded: it computes what depends on shapes."""
    known: Mapping[int, Constant]
    """The constants, and the values of `unfolded` that are known at this binding, by id."""
    limited: frozenset[str] = frozenset()
    """Symbols that have the largest value that the model accepts; where there are some, constants of this lane hold
    those of all others."""
    folded: frozenset[int] = frozenset()
    """The nodes of `unfolded` that constants took the place of."""
    nodes: dict[int, int] = field(default_factory=dict)
    values: dict[int, int] = field(default_factory=dict)

    def describe(self) -> str:
        """Return the binding in words."""
        return ", ".join(f"{symbol}={value}" for symbol, value in self.symbols.items())


def open_lane(
    original: Graph,
    start: Graph,
    symbols: Mapping[str, int],
    shapes: Shapes,
    limited: frozenset[str] = frozenset(),
    folded: frozenset[int] | None = None,
) -> Lane:
    """Return a model at other shapes of its inputs.

    Args:
        original: the model as loaded, at the binding that was searched.
        start: its normalised graph.
        symbols: values of the symbolic dimensions.
        shapes: the shapes of the inputs that follow.
        limited: symbols that cannot have larger values.
        folded: the nodes that are folded at the binding that was searched, None for the lane of that binding. How large
            a result is decides whether it is folded, and would decide otherwise here.

    Raises:
        NotGeneralError: the normalised graph has another structure there.
    """
    result, unfolded = _rebound(original, shapes), original
    known: Mapping[int, Constant] = {}
    # What ONNX Runtime runs depends on types and attributes: at the binding that was searched it runs this opset.
    operator_set = OperatorSet(start.opset, tried=True)
    instead: dict[str, Pass] = {OperatorSet.name: operator_set, FoldConstants.name: FoldConstants(folded)}
    for step in (instead.get(step.name, step) for step in PASSES):
        if step.name == FoldConstants.name:
            unfolded = result
        result = step.run(result).graph
        if step.name == FoldConstants.name:
            known, folded = dict(result.constants), frozenset(unfolded.nodes.keys() - result.nodes.keys())
    lane = Lane(symbols, shapes, result, unfolded, known, limited, folded or frozenset())
    _align(start, lane)
    return lane


def _rebound(original: Graph, shapes: Shapes) -> Graph:
    """Return a loaded graph with other shapes of its inputs; it shares nodes and weights."""
    types: dict[int, TensorType | None] = dict.fromkeys(original.types)
    for value, constant in (*original.constants.items(), *original.stored.items()):
        types[value] = constant.type
    for value in original.inputs:
        known = original.types[value]
        shape = shapes.get(original.names[value])
        types[value] = known if known is None or shape is None else TensorType(known.dtype, tuple(shape))
    graph = replace(original, types=types, memo=GraphMemo(), edit=None)
    infer_types(graph, {})
    return graph


def _align(start: Graph, lane: Lane) -> None:
    """Record which nodes and values of a lane are those of the graph that was searched: the same ones, by id."""
    graph = lane.graph
    where = f"at {lane.describe()}"
    if start.opset != graph.opset:
        raise NotGeneralError(f"{where} the model stays in opset {graph.opset} instead of {start.opset}")
    if start.nodes.keys() != graph.nodes.keys():
        other = min(start.nodes.keys() ^ graph.nodes.keys())
        node = start.nodes.get(other) or graph.nodes[other]
        raise NotGeneralError(f"{where} the model's own {node.op} is needed or superfluous, unlike at the bound shape")
    for node in start.nodes.values():
        twin = graph.nodes[node.id]
        same = node.signature == twin.signature and node.outputs == twin.outputs
        if not same or _read(start, node.inputs) != _read(graph, twin.inputs):
            raise NotGeneralError(f"{where} the model's {node.op} reads other values than at the bound shape")
    if _read(start, start.outputs) != _read(graph, graph.outputs):
        raise NotGeneralError(f"{where} the model has other outputs than at the bound shape")
    lane.nodes = {node_id: node_id for node_id in graph.nodes}
    lane.values = {value: value for value in (*graph.inputs, *graph.producer)}


def _read(graph: Graph, values: tuple[int | None, ...]) -> list[int | str | None]:
    return ["constant" if value in graph.constants else value for value in values]
