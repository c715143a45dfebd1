"""Operators that move elements, on values in ONNX Runtime's blocked layout. Each function returns None where the
operator has to leave the layout."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from graph_rewrite.ir.node import Node
from graph_rewrite.rules.helpers.axes import permutation
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.slices import slice_ranges
from graph_rewrite.rules.layout.blocked_image import BlockedImage, cut, join, padded, reshaped, split, transposed
from graph_rewrite.rules.layout.blocked_values import BlockedValues


def move_by_reshape(values: BlockedValues, node: Node) -> BlockedImage | None:
    """Carry a Reshape, or an operator that is one."""
    x = values.first(node)
    return None if x is None else reshaped(values.op, x, values.m.ref(node.outputs[0]).shape)


def move_by_transpose(values: BlockedValues, node: Node) -> BlockedImage | None:
    x = values.first(node)
    return None if x is None else transposed(x, permutation(node.attrs.get("perm"), len(x.dims)))


def move_by_slice(values: BlockedValues, node: Node) -> BlockedImage | None:
    x = values.first(node)
    if x is None or len(node.inputs) < 3:  # before opset 10 the ranges were attributes
        return None
    starts, ends, axes, steps = (*values.constants(node), None, None)[:4]
    if starts is None or ends is None:
        return None
    ranges = slice_ranges(values.m.ref(node.inputs[0] or 0), starts, ends, axes, steps)
    if not isinstance(ranges, Mapping):
        return None
    found: BlockedImage | None = x
    for axis, kept in ranges.items():
        if found is not None and kept != range(x.shape[axis]):
            found = cut(values.op, found, axis, kept)
    return found


def move_by_gather(values: BlockedValues, node: Node) -> BlockedImage | None:
    """Carry a Gather of constant indices that are a range."""
    x, (indices,) = values.first(node), values.constants(node)
    chosen, axis = ints(indices), node.attrs.get("axis", 0)
    if x is None or indices is None or indices.rank != 1 or not chosen:
        return None
    steps = {b - a for a, b in itertools.pairwise(chosen)}
    if len(steps) > 1 or min(chosen) < 0 or steps & {0}:
        return None
    step = steps.pop() if steps else 1
    return cut(values.op, x, axis % len(x.dims), range(chosen[0], chosen[-1] + step, step))


def move_by_split(values: BlockedValues, node: Node) -> list[BlockedImage] | None:
    x = values.first(node)
    if x is None:
        return None
    axis = node.attrs.get("axis", 0) % len(x.dims)
    return split(values.op, x, axis, [values.m.ref(value).shape[axis] for value in node.outputs])


def move_by_concat(values: BlockedValues, node: Node) -> BlockedImage | None:
    main = next((known for value in node.inputs if (known := values.known(value)) is not None), None)
    if main is None:
        return None
    operands = [values.blocked(value, main) for value in node.inputs if value is not None]
    found = [operand for operand in operands if operand is not None]
    axis = node.attrs["axis"] % len(main.dims)
    return join(values.op, found, axis) if len(found) == len(operands) else None


def move_by_pad(values: BlockedValues, node: Node) -> BlockedImage | None:
    x = values.first(node)
    # Before opset 11 the amounts were an attribute.
    if x is None or len(node.inputs) < 2 or node.attrs.get("mode", "constant") != "constant":
        return None
    amounts, value, axes = (*values.constants(node), None, None)[:3]
    counts, named = ints(amounts), ints(axes) if axes is not None else tuple(range(len(x.dims)))
    if counts is None or named is None:
        return None
    found: BlockedImage | None = x
    for i, axis in enumerate(named):
        before, after = counts[i], counts[len(named) + i]
        if found is not None and (before or after):
            found = padded(values.op, found, axis % len(x.dims), before, after, value)
    return found
