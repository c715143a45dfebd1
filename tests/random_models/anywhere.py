"""Blocks for values of any rank."""

from __future__ import annotations

import numpy as np
from onnx import helper

from tests.random_models.net import Block, Net


def unary(net: Net, x: str) -> list[str]:
    op = net.choose(["Relu", "Sigmoid", "Tanh", "Identity", "Gelu", "Neg", "Erf", "Abs"])
    return [net.node(op, [x], net.shapes[x])]


def binary(net: Net, x: str) -> list[str]:
    other = net.partner(net.shapes[x], x)
    op = net.choose(["Add", "Sub", "Mul", "Max"])
    inputs = [x, other] if net.flip() else [other, x]
    return [net.node(op, inputs, net.shapes[x])]


def with_constant(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    op = net.choose(["Add", "Mul", "Sub", "Div"])
    wide = {4: (shape[1], 1, 1)}.get(len(shape), (shape[-1],))
    array = 1.0 + net.rng.random(wide)
    y = net.constant(array.astype(net.dtype)) if net.flip() else net.scalar(net.choose([0.5, 2.0, -1.5]))
    return [net.node(op, [x, y], shape)]


def neutral(net: Net, x: str) -> list[str]:
    """Append an operator that changes nothing."""
    shape = net.shapes[x]
    kind = net.choose(
        ["Identity", "Add", "Mul", "Div", "Sub", "Dropout", "Reshape", "Transpose", "Cast", "Expand", "Slice"]
    )
    if kind in ("Identity", "Dropout"):
        return [net.node(kind, [x], shape)]
    if kind in ("Add", "Sub"):
        return [net.node(kind, [x, net.scalar(0.0)], shape)]
    if kind in ("Mul", "Div"):
        return [net.node(kind, [x, net.scalar(1.0)], shape)]
    if kind == "Transpose":
        return [net.node(kind, [x], shape, perm=list(range(len(shape))))]
    if kind == "Cast":
        return [net.node(kind, [x], shape, to=int(helper.np_dtype_to_tensor_dtype(np.dtype(net.dtype))))]
    if kind == "Slice":
        return [net.node(kind, [x, net.ints(0), net.ints(2**31), net.ints(len(shape) - 1)], shape)]
    return [net.node(kind, [x, net.ints(*shape)], shape)]


def constant_chain(net: Net, x: str) -> list[str]:
    """Append operators over constants alone or over a value's shape, as exporters leave them."""
    shape = net.shapes[x]
    if net.flip():
        return [net.node("Reshape", [x, net.node("Shape", [x], (len(shape),))], shape)]
    table = net.weight(2, shape[-1], scale=1.0)
    row = net.node("Gather", [table, net.constant(np.array(1, dtype=np.int64))], (shape[-1],))
    return [net.node("Add", [x, net.node("Neg", [row], (shape[-1],))], shape)]


def transposes(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    perm = net.chooser.permutation(len(shape))
    y = net.node("Transpose", [x], tuple(shape[i] for i in perm), perm=perm)
    if net.flip():
        y = net.node(net.choose(["Relu", "Tanh", "Neg"]), [y], net.shapes[y])
    back = [perm.index(i) for i in range(len(perm))]
    return [net.node("Transpose", [y], shape, perm=back), *([y] if net.flip() and len(shape) != 4 else [])]


def concat_split(net: Net, x: str) -> list[str]:
    shape, axis = net.shapes[x], 1 if len(net.shapes[x]) == 4 else net.choose(range(len(net.shapes[x])))
    other = net.partner(shape, x)
    joined = net.node("Concat", [x, other], (*shape[:axis], 2 * shape[axis], *shape[axis + 1 :]), axis=axis)
    if net.flip():
        joined = net.node(net.choose(["Relu", "Tanh"]), [joined], net.shapes[joined])
    sizes = net.ints(shape[axis], shape[axis])
    return net.nodes_with("Split", [joined, sizes], [shape, shape], axis=axis)


def three_ways(net: Net, x: str) -> list[str]:
    """Append a Concat of three values and a Split into three, with other operators between them."""
    shape, axis = net.shapes[x], 1 if len(net.shapes[x]) == 4 else len(net.shapes[x]) - 1
    parts = [net.node(net.choose(["Neg", "Tanh"]), [x], shape) if net.flip() else x for _ in range(3)]
    wide = (*shape[:axis], 3 * shape[axis], *shape[axis + 1 :])
    joined = net.node("Concat", parts, wide, axis=axis)
    if net.flip():
        joined = net.node("Add", [joined, net.partner(wide, joined)], wide)
    if net.flip():
        joined = net.node("Relu", [joined], wide)
    results = net.nodes_with("Split", [joined, net.ints(*(3 * [shape[axis]]))], [shape] * 3, axis=axis)
    return [net.node("Neg", [y], shape) for y in results] if net.flip() else results


def slices(net: Net, x: str) -> list[str]:
    """Append two Slices of a value and the Concat that restores it."""
    shape, axis = net.shapes[x], len(net.shapes[x]) - 1
    half = (*shape[:-1], shape[-1] // 2)
    rest = (*shape[:-1], shape[-1] - half[-1])
    if net.flip():
        x = net.node(net.choose(["Relu", "Neg"]), [x], shape)
    first = net.node("Slice", [x, net.ints(0), net.ints(half[-1]), net.ints(axis)], half)
    second = net.node("Slice", [x, net.ints(half[-1]), net.ints(shape[-1]), net.ints(axis)], rest)
    if net.flip():
        first, second = net.node("Tanh", [first], half), net.node("Tanh", [second], rest)
    return [net.node("Concat", [first, second], shape, axis=axis)]


def powers(net: Net, x: str) -> list[str]:
    """Append squares, roots or quotients of positive numbers."""
    shape = net.shapes[x]
    positive = net.node("Add", [net.node("Abs", [x], shape), net.scalar(1.0)], shape)
    kind = net.choose(["square", "Pow", "Sqrt", "Reciprocal", "Div", "factor", "Silu", "QuickGelu", "HardSwish"])
    if kind == "square":
        return [net.node("Mul", [x, x], shape)]
    if kind == "Pow":
        return [net.node("Pow", [positive, net.scalar(net.choose([0.5, 1.0, 2.0, 3.0]))], shape)]
    if kind in ("Sqrt", "Reciprocal"):
        return [net.node("Mul", [x, net.node(kind, [positive], shape)], shape)]
    if kind == "Div":
        return [net.node("Mul", [x, net.node("Div", [net.scalar(1.0), positive], shape)], shape)]
    if kind == "factor":
        return [net.node("Add", [net.node("Mul", [x, positive], shape), x], shape)]
    if kind == "Silu":
        return [net.node("Mul", [x, net.node("Sigmoid", [x], shape)], shape)]
    if kind == "QuickGelu":
        scaled = net.node("Mul", [x, net.scalar(1.702)], shape)
        return [net.node("Mul", [x, net.node("Sigmoid", [scaled], shape)], shape)]
    gate = net.node("HardSigmoid", [x], shape, alpha=1.0 / 6.0, beta=0.5)
    return [net.node("Mul", [x, gate], shape)]


def clips(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    high = [net.scalar(6.0)] if net.flip() else []
    y = net.node("Clip", [x, net.scalar(0.0), *high], shape)
    if net.flip():
        y = net.node("Clip", [y, net.scalar(-1.0), net.scalar(3.0)], shape)
    return [net.node("Relu", [y], shape) if net.flip() else y]


def sums(net: Net, x: str) -> list[str]:
    """Append nested sums, differences and negations."""
    shape = net.shapes[x]
    a, b = net.partner(shape, x), net.partner(shape, x)
    kind = net.choose(["Sum", "nested", "minus", "Where"])
    if kind == "Sum":
        return [net.node("Sum", [x, a, b] if net.flip() else [x, a], shape)]
    if kind == "nested":
        return [net.node("Add", [net.node("Add", [x, a], shape), net.node("Mul", [b, net.scalar(0.5)], shape)], shape)]
    if kind == "minus":
        return [net.node(net.choose(["Add", "Sub"]), [a, net.node("Neg", [x], shape)], shape)]
    always = net.constant(np.array(net.flip()))
    return [net.node("Where", [always, x, a], shape)]


ANY_BLOCKS: tuple[Block, ...] = (
    unary, binary, with_constant, neutral, constant_chain, transposes, concat_split, three_ways, slices, powers, clips,
    sums,
)  # fmt: skip
