"""Thinner windows: products and convolutions at the border do less work.

Both sides share them, so they take as long on either, and their time only hides the difference. They are kept, since
ONNX Runtime may fuse across them and chooses layouts by them. But one that only brings a value in reads fewer channels,
and one that only takes a value away gives fewer.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from graph_rewrite.ir.constants import Constant, from_ints
from graph_rewrite.ir.graph import Graph, consumers_of
from graph_rewrite.ir.memo import GraphMemo
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.operators.folding import fold

TRAFFIC = 1 << 18
"""Elements that a thinned operator still reads and writes beside what the window has of it: a megabyte in float32, as
much as caches of the second level hold, so that the window finds them as it would in the whole model."""
STEP = 16
"""Channels go in steps of this: widths of vectors and of ONNX Runtime's blocked layout divide it."""


@dataclass(frozen=True, slots=True)
class _Axes:
    """The axes of an operator x, w, [b] -> y: those of the channels that it sums over, and of those that it gives."""

    summed: tuple[int, int]
    """Of x and w."""
    given: tuple[int, int]
    """Of w and y."""


def thin(before: Graph, after: Graph) -> tuple[Graph, Graph]:
    """Two sides of a window with fewer channels at its borders; the sides themselves where there is nothing to spare.

    Types of inputs and outputs change alike on both sides, weights become parts of what they are. Nodes keep their ids.
    """
    sides = (before, after)
    axes = {n: found for n in sorted(before.nodes) if (found := _axes(n, sides)) is not None}
    changes = _Changes(before)
    for value in before.inputs:
        readers = [set(side.consumers.get(value, ())) for side in sides]
        if readers[0] and readers[0] == readers[1] and readers[0] <= axes.keys():
            changes.read_less(value, {n: axes[n] for n in sorted(readers[0])})
    for n, found in axes.items():
        value = before.nodes[n].outputs[0]
        if all(value in side.outputs and not side.consumers.get(value) for side in sides):
            changes.give_less(n, found)
    return changes.of(before), changes.of(after)


def _axes(node_id: int, sides: tuple[Graph, Graph]) -> _Axes | None:
    """None for operators of other kinds, and unless both sides have the operator, with the same constant weights: a
    change before it may have given it another input."""
    node, other = (side.nodes.get(node_id) for side in sides)
    if node is None or other is None or node.domain or node.op not in ("MatMul", "Gemm", "Conv"):
        return None
    if (node.signature, node.inputs[1:], node.outputs) != (other.signature, other.inputs[1:], other.outputs):
        return None
    if any(value not in side.constants for side in sides for value in node.inputs[1:]):
        return None
    if node.inputs[0] is None or node.inputs[1] is None or node.inputs[0] in node.inputs[1:]:
        return None
    weight = sides[0].constants[node.inputs[1]].type
    if node.op == "Conv":
        return _Axes((1, 1), (0, 1)) if node.attrs.get("group", 1) == 1 else None
    if weight.rank != 2:
        return None
    turned = bool(node.attrs.get("transB", 0))
    return _Axes((0 if node.attrs.get("transA", 0) else -1, int(turned)), (int(not turned), -1))


class _Changes:
    """Types, constants and operands in place of those of two sides."""

    def __init__(self, before: Graph) -> None:
        self._graph = before
        self._types: dict[int, TensorType] = {}
        self._constants: list[tuple[int, int, Constant]] = []
        """Of a node, by the position of the operand, what it reads."""

    def read_less(self, value: int, readers: Mapping[int, _Axes]) -> None:
        """`value` gets fewer channels, and so do the weights of its readers, as far as all of them agree."""
        type = self._type(value)
        found = {axes.summed[0] % type.rank for axes in readers.values()}
        if len(found) > 1:
            return
        axis = found.pop()
        weights = [self._operands(n)[1] for n in readers]
        kept = _kept(type.shape[axis], 0, type.size + min(weight.size for weight in weights))
        if kept is None:
            return
        self._types[value] = _cut(type, axis, kept)
        for n, axes in readers.items():
            self._replace(n, 1, axes.summed[1], kept)

    def give_less(self, node_id: int, axes: _Axes) -> None:
        """Let a node give fewer channels, by a slice of its weights."""
        if any(node_id == n for n, _, _ in self._constants):
            return
        x, weight, *bias = self._operands(node_id)
        value = self._graph.nodes[node_id].outputs[0]
        given, channels = self._type(value), weight.shape[axes.given[0]]
        kept = _kept(channels, x.size, weight.size + given.size)
        if kept is None:
            return
        self._types[value] = _cut(given, axes.given[1] % given.rank, kept)
        self._replace(node_id, 1, axes.given[0], kept)
        if bias and bias[0].rank and bias[0].shape[-1] == channels:
            self._replace(node_id, 2, bias[0].rank - 1, kept)

    def of(self, graph: Graph) -> Graph:
        """Return one of the sides with all changes."""
        if not self._constants:
            return graph
        nodes, constants, types = dict(graph.nodes), dict(graph.constants), {**graph.types, **self._types}
        for new, (n, position, constant) in enumerate(self._constants, graph.next_id):
            inputs = list(nodes[n].inputs)
            inputs[position], types[new], constants[new] = new, constant.type, constant
            nodes[n] = nodes[n].with_inputs(inputs)
        consumers = consumers_of(nodes.values())
        constants = {value: constant for value, constant in constants.items() if value in consumers}
        next_id = graph.next_id + len(self._constants)
        return replace(
            graph,
            nodes=nodes,
            types=types,
            constants=constants,
            consumers=consumers,
            next_id=next_id,
            memo=GraphMemo(),
            edit=None,
        )

    def _operands(self, node_id: int) -> list[TensorType]:
        return [self._type(value) for value in self._graph.nodes[node_id].inputs if value is not None]

    def _type(self, value: int) -> TensorType:
        type = self._types.get(value) or self._graph.types[value]
        assert type is not None  # a window has types of all its values
        return type

    def _replace(self, node_id: int, position: int, axis: int, kept: int) -> None:
        """Read of a constant operand only the first elements along an axis."""
        value = self._graph.nodes[node_id].inputs[position]
        assert value is not None
        constant = self._graph.constants[value]
        bounds = [from_ints((number,)) for number in (0, kept, axis)]
        (part,) = fold("Slice", "", {}, [constant, *bounds], [_cut(constant.type, axis, kept)], self._graph.opset)
        self._constants.append((node_id, position, part))


def _kept(channels: int, fixed: int, variable: int) -> int | None:
    """Channels with which `variable` elements shrink until `TRAFFIC` are left together with `fixed` ones; None where
    that is not half of them or less, or where they are no whole steps."""
    if channels % STEP:
        return None
    needed = max(TRAFFIC - fixed, 0) * channels / variable
    kept = STEP * max(1, math.ceil(needed / STEP))
    return kept if 2 * kept <= channels else None


def _cut(type: TensorType, axis: int, size: int) -> TensorType:
    return TensorType(type.dtype, (*type.shape[:axis], size, *type.shape[axis + 1 :]))
