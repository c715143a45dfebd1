"""Element-wise operators on values in ONNX Runtime's blocked layout. Each function returns None where the operator has
to leave the layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from graph_rewrite.ir.node import Node
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.layout.blocked_conv import fused_activation, scaled
from graph_rewrite.rules.layout.blocked_image import BlockedImage, image_of, in_order
from graph_rewrite.rules.layout.blocked_values import BlockedValues


def unary(values: BlockedValues, node: Node) -> BlockedImage | None:
    """Carry an activation, which goes into the convolution that waits with its operand, or any function of one
    operand."""
    x, waiting = values.first(node), values.waiting(node.inputs[0])
    if x is None or any(ref is not None and ref.type.size != 1 for ref in values.constants(node)):
        return None
    fused = fused_activation(node, values.constants(node))
    if waiting is not None and fused is not None and "activation" not in waiting.attrs:
        return values.wait(node.outputs[0], replace(waiting, attrs={**waiting.attrs, **fused}), x.shape)
    made = values.op.apply(node.op, "", dict(node.attrs), (x.make(), *values.constants(node)), 1)[0]
    return replace(x, make=lambda: made)


def binary(values: BlockedValues, node: Node) -> BlockedImage | None:
    """Carry a function of two operands of one shape, or of one and a constant."""
    left, right = node.inputs
    if left is None or right is None or not (values.is_blocked(left) or values.is_blocked(right)):
        return None
    result = values.m.ref(node.outputs[0])
    shapes = [values.m.ref(value).shape for value in (left, right)]
    if shapes[0] != shapes[1]:
        return _with_constant(values, node, left, right, result.shape)
    main = values.known(left) or values.known(right)
    pair = [values.blocked(value, main) for value in (left, right)]
    if pair[0] is None or pair[1] is None:
        return None
    a, b = pair[0], pair[1]
    if node.op == "Add":
        fused = _sum(values, node, (left, right), (a, b))
        if fused is not None:
            return fused
    if a.layout != b.layout:
        a, b = in_order(values.op, a), in_order(values.op, b)
    if a.layout != b.layout:
        return None
    first = a.make()
    second = image_of(values.op, b) if b.make().shape != first.shape else b.make()
    first = image_of(values.op, a) if first.shape != second.shape else first
    made = values.op.apply(node.op, "", dict(node.attrs), (first, second), 1)[0]
    return replace(a, make=lambda: made)


def _sum(
    values: BlockedValues, node: Node, summands: Sequence[int], pair: Sequence[BlockedImage]
) -> BlockedImage | None:
    """Return the sum as an input of the convolution that computes one of the summands."""
    for own, other in ((0, 1), (1, 0)):
        waiting = values.waiting(summands[own])
        if waiting is None or not waiting.takes_sum or summands[0] == summands[1]:
            continue
        total = in_order(values.op, pair[other])
        if total.layout != pair[own].layout:
            continue
        inputs = (*waiting.inputs, image_of(values.op, total))
        return values.wait(node.outputs[0], replace(waiting, inputs=inputs), pair[own].shape)
    return None


def _with_constant(
    values: BlockedValues, node: Node, left: int, right: int, shape: tuple[int, ...]
) -> BlockedImage | None:
    """Carry a function of a blocked value and a constant number, or one number per channel."""
    value, other = (left, right) if values.is_blocked(left) else (right, left)
    x, c = values.known(value), values.plain(other)
    if x is None or c.constant is None or x.shape != shape:
        return None
    if c.type.size == 1:
        number = reshape(values.op, c, ())
        operands = (x.make(), number) if value == left else (number, x.make())
        made = values.op.apply(node.op, "", dict(node.attrs), operands, 1)[0]
        return replace(x, make=lambda: made)
    image = scaled(values.op, node.op, x, c, value == left)
    return None if image is None else replace(x, make=lambda: image)
