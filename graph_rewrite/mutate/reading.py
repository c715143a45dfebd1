"""Operators of a graph as steps of a program, or the reason why one is none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

import numpy as np
import onnx

from graph_rewrite.ir.constants import Constant
from graph_rewrite.ir.node import Node
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.layouts import Crop, Fuse, Pad, Reorder, Split
from graph_rewrite.mutate.program import Step, step
from graph_rewrite.rewriting.rule import Refusal

_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE)

_OTHER_LINEAR = frozenset(
    ("Expand", "Sub", "Neg", "Div", "Sum", "Gather", "ConvTranspose", "BatchNormalization",
     "Identity", "Tile")
)  # fmt: skip
"""Operators that are linear, at least with constants as their other operands, and that no step stands for."""


@dataclass(frozen=True, slots=True)
class Reading:
    """The steps that an operator is, one after the other; operands are values of the graph, -1 is the step before, and
    -2 the one before that. `results` are the steps, by number, that give its outputs."""

    steps: tuple[Step, ...]
    results: tuple[int, ...]


BEFORE, TWO_BEFORE = -1, -2


class KnownValues(Protocol):
    """The types of values, None for a dynamic one, and the constants among them: a `Graph`, or a match of a rule."""

    @property
    def types(self) -> Mapping[int, TensorType | None]: ...

    @property
    def constants(self) -> Mapping[int, Constant]: ...


def read(graph: KnownValues, node: Node) -> Reading | Refusal:
    """Return a node as steps, or the reason why it is not linear, or not known to be."""
    reader = _READERS.get(node.op)
    if reader is None or node.domain or node.opaque:
        if node.opaque:
            return Refusal(f"{node.op} is opaque")
        linear = node.op in _OTHER_LINEAR and not node.domain
        return Refusal(f"{node.op} is linear, but no step of programs" if linear else f"{node.op} is not linear")
    types = [graph.types[value] for value in (*node.inputs[:1], *node.outputs) if value is not None]
    if any(type is None for type in types):
        return Refusal(f"{node.op} has a dynamic shape; give the model fixed shapes")
    known = [type for type in types if type is not None]
    if any(type.dtype not in _FLOATS for type in known):
        return Refusal(f"{node.op} computes {known[0]}; only float and double are proved")
    parts = node.op == "Split"
    if (len(node.outputs) != 1 and not parts) or any(prod(type.shape) == 0 for type in known):
        return Refusal(f"{node.op} has several outputs or an empty one")
    found = reader(graph, node, [value for value in node.inputs if value is not None], known[0])
    if isinstance(found, Refusal):
        return found
    return Reading(tuple(found), tuple(range(len(found))) if parts else (len(found) - 1,))


Found = Sequence[Step] | Refusal


def _conv(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    w = graph.types[values[1]]
    rank = x.rank - 2
    if w is None or node.attrs.get("auto_pad", "NOTSET") != "NOTSET":
        return Refusal("Conv leaves its pads to auto_pad")
    ones = (1,) * rank
    return [
        step(
            "conv", *values, strides=tuple(node.attrs.get("strides", ones)),
            dilations=tuple(node.attrs.get("dilations", ones)), pads=tuple(node.attrs.get("pads", (0,) * (2 * rank))),
        )
    ]  # fmt: skip


def _pool(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    rank, attrs = x.rank - 2, node.attrs
    ones = (1,) * rank
    dilated = tuple(attrs.get("dilations", ones)) != ones
    if attrs.get("auto_pad", "NOTSET") != "NOTSET" or attrs.get("ceil_mode", 0) or dilated:
        return Refusal("AveragePool with auto_pad, ceil_mode or dilations")
    pads = tuple(attrs.get("pads", (0,) * (2 * rank)))
    return [
        step(
            "pool", values[0], kernel=tuple(attrs["kernel_shape"]), strides=tuple(attrs.get("strides", ones)),
            pads=pads, counted=int(bool(attrs.get("count_include_pad", 0)) or not any(pads)),
        )
    ]  # fmt: skip


def _product(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    types = [graph.types[value] for value in values]
    if any(type is None or type.rank < 2 for type in types):
        return Refusal("MatMul of a vector")
    return [step("matmul", *values)]


def _mul(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    if not any(value in graph.constants for value in values):
        return Refusal("Mul of two values is not linear")
    return [step("mul", *values)]


def _concat(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    axis = int(node.attrs["axis"]) % x.rank
    if len(values) < 2:
        return Refusal("Concat of one value")
    return [
        step("concat", values[0], values[1], axis=axis), *(step("concat", BEFORE, v, axis=axis) for v in values[2:])
    ]  # fmt: skip


def _transpose(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    perm = tuple(node.attrs.get("perm", tuple(reversed(range(x.rank)))))
    return [step("layout", values[0], chain=(Reorder(perm),))]


def _pad(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    constant = graph.constants.get(values[1])
    value = graph.constants.get(values[2]) if len(values) > 2 else None
    if constant is None or len(values) > 3 or node.attrs.get("mode", "constant") != "constant" or len(values) < 2:
        return Refusal("Pad by other values than constant zeros")
    if len(values) > 2 and (value is None or np.any(value.numpy())):
        return Refusal("Pad by other values than constant zeros")
    pads = [int(size) for size in constant.numpy()]
    if min(pads) < 0:
        return Refusal("Pad that cuts elements off")
    chain = [Pad(i, pads[i], pads[x.rank + i]) for i in range(x.rank) if pads[i] or pads[x.rank + i]]
    return [step("layout", values[0], chain=tuple(chain))] if chain else Refusal("Pad by nothing")


def _slice(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    parts = [graph.constants.get(value) for value in values[1:]]
    if len(parts) < 2 or any(part is None for part in parts) or len(values) != len(node.inputs):
        return Refusal("Slice whose borders are no constants")
    starts, ends, *rest = [part.numpy().astype(np.int64).tolist() for part in parts if part is not None]
    axes = [axis % x.rank for axis in rest[0]] if rest else list(range(len(starts)))
    if len(rest) > 1 and any(size != 1 for size in rest[1]):
        return Refusal("Slice in steps")
    chain = []
    for axis, start, end in zip(axes, starts, ends, strict=True):
        first, last, _ = slice(start, end).indices(x.shape[axis])
        chain.append(Crop(axis, first, x.shape[axis] - last))
    return [step("layout", values[0], chain=tuple(chain))]


def _split(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    """Read a Split as a crop for each part."""
    axis = int(node.attrs.get("axis", 0)) % x.rank
    types = [graph.types[value] for value in node.outputs]
    if len(types) < 2:
        return Refusal("Split into one part")
    steps, start = [], 0
    for size in [type.shape[axis] for type in types if type is not None]:
        crop = Crop(axis, start, x.shape[axis] - start - size)
        steps.append(step("layout", values[0], chain=(crop,)))
        start += size
    return steps


def _gemm(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    attrs = node.attrs
    if attrs.get("alpha", 1.0) != 1.0 or attrs.get("beta", 1.0) != 1.0 or attrs.get("transA", 0):
        return Refusal("Gemm with factors, or of a transposed first operand")
    steps = [step("layout", values[1], chain=(Reorder((1, 0)),))] if attrs.get("transB", 0) else []
    steps.append(step("matmul", values[0], BEFORE if steps else values[1]))
    return [*steps, *(step("add", BEFORE, bias) for bias in values[2:])]


def _whole_average(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    rank = x.rank - 2
    if rank < 1:
        return Refusal(f"{node.op} of no image")
    if node.op == "ReduceMean" and _reduced_axes(graph, node, values, x) != list(range(2, x.rank)):
        return Refusal("ReduceMean of other axes than those of an image, or without keeping them")
    pads, ones = (0,) * (2 * rank), (1,) * rank
    return [step("pool", values[0], kernel=tuple(x.shape[2:]), strides=ones, pads=pads, counted=1)]


def _reduced_axes(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> list[int] | None:
    """Return the axes of a reduction that keeps them; None where they are not known, or not kept."""
    return _axes(graph, node, values, x) if node.attrs.get("keepdims", 1) else None


def _axes(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> list[int] | None:
    axes = node.attrs.get("axes")
    if axes is None and len(values) > 1 and values[1] in graph.constants:
        axes = graph.constants[values[1]].numpy().tolist()
    return sorted(int(axis) % x.rank for axis in axes) if isinstance(axes, (list, tuple)) else None


def _sum(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    """Read a sum over the last axes as a product with a column of ones."""
    keepdims = bool(node.attrs.get("keepdims", 1))
    axes = _axes(graph, node, values, x)
    first = 0 if axes is None else x.rank - len(axes)
    if axes is None or first < 1 or axes != list(range(first, x.rank)):
        return Refusal("ReduceSum of other axes than the last ones")
    count = prod(x.shape[first:])
    steps = [step("constant", values[0], numerators=(1,), denominator=1, shape=(count, 1))]
    if len(axes) > 1:
        steps.append(step("layout", values[0], chain=(Fuse(first, x.shape[first:]),)))
        steps.append(step("matmul", BEFORE, TWO_BEFORE))
    else:
        steps.append(step("matmul", values[0], BEFORE))
    last = Split(first, (1,) * len(axes) if keepdims else ())
    return steps if keepdims and len(axes) == 1 else [*steps, step("layout", BEFORE, chain=(last,))]


def _view(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    """Read a change of shape alone: all axes are fused, and split anew."""
    made = graph.types[node.outputs[0]]
    if made is None or made.shape == x.shape or not x.shape or not made.shape:
        return Refusal(f"{node.op} changes nothing, or gives a scalar")
    fused = (Fuse(0, x.shape),) if x.rank > 1 else ()
    return [step("layout", values[0], chain=(*fused, *([Split(0, made.shape)] if made.rank > 1 else [])))]


def _add(graph: KnownValues, node: Node, values: list[int], x: TensorType) -> Found:
    return [step("add", *values)]


_READERS: dict[str, Callable[[KnownValues, Node, list[int], TensorType], Found]] = {
    "Conv": _conv,
    "AveragePool": _pool,
    "MatMul": _product,
    "Add": _add,
    "Mul": _mul,
    "Concat": _concat,
    "Transpose": _transpose,
    "Pad": _pad,
    "Slice": _slice,
    "Split": _split,
    "Gemm": _gemm,
    "GlobalAveragePool": _whole_average,
    "ReduceMean": _whole_average,
    "ReduceSum": _sum,
    "Reshape": _view,
    "Flatten": _view,
    "Squeeze": _view,
    "Unsqueeze": _view,
}
