"""Blocks of transformers, for values of shape [batch, length, width]."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.random_models.anywhere import unary
from tests.random_models.net import Block, Net

HEADS = 2


def reshapes(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    flat = net.node("Reshape", [x, net.ints(-1, shape[-1])], (int(np.prod(shape[:-1])), shape[-1]))
    if net.flip():
        flat = net.node(net.choose(["Relu", "Sigmoid"]), [flat], net.shapes[flat])
    if net.flip():
        axes = net.ints(0)
        up = net.node("Unsqueeze", [flat, axes], (1, *net.shapes[flat]))
        flat = net.node("Squeeze", [up, axes], net.shapes[flat])
    return [net.node("Reshape", [flat, net.ints(*shape)], shape)]


def split_concat(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if shape[-1] % 2:
        return unary(net, x)
    half = (*shape[:-1], shape[-1] // 2)
    a, b = net.nodes_with("Split", [x], [half, half], axis=-1, num_outputs=2)
    if net.flip():
        op = net.choose(["Relu", "Neg"])
        a, b = net.node(op, [a], half), net.node(op, [b], half)
    return [net.node("Concat", [a, b] if net.flip() else [b, a], shape, axis=-1)]


def linear(net: Net, x: str, width: int | None = None, weight: str | None = None) -> str:
    shape = net.shapes[x]
    width = width or shape[-1]
    y = net.node("MatMul", [x, weight or net.weight(shape[-1], width)], (*shape[:-1], width))
    if net.flip():
        bias = net.weight(width, scale=0.5)
        y = net.node("Add", [y, bias] if net.flip() else [bias, y], net.shapes[y])
    return y


def matmul(net: Net, x: str) -> list[str]:
    y = linear(net, x)
    return [linear(net, y) if net.flip() else y]


def parallel_matmuls(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    parts = [linear(net, x) for _ in range(net.choose([2, 3]))]
    kind = net.choose(["apart", "Add", "Concat"])
    if kind == "apart":
        return parts
    if kind == "Add":
        return [net.node("Add", parts[:2], shape), *parts[2:]]
    wide = net.node("Concat", parts, (*shape[:-1], len(parts) * shape[-1]), axis=-1)
    return [linear(net, wide, shape[-1])]


def product_sums(net: Net, x: str) -> list[str]:
    """Append a sum of products with a common factor on either side."""
    shape = net.shapes[x]
    other, w = net.partner(shape, x), net.weight(shape[-1], shape[-1])
    a = net.node("MatMul", [x, w], shape)
    if net.flip():
        return [net.node("Add", [a, net.node("MatMul", [other, w], shape)], shape)]
    return [net.node("Add", [a, net.node("MatMul", [x, net.weight(shape[-1], shape[-1])], shape)], shape)]


def gemm(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    rows, width = int(np.prod(shape[:-1])), shape[-1]
    flat = net.node("Reshape", [x, net.ints(rows, width)], (rows, width))
    attrs: dict[str, Any] = {"transB": 1} if net.flip() else {}
    if net.flip():
        attrs |= {"alpha": 0.5, "beta": 2.0}
    inputs = [flat, net.weight(width, width), *([net.weight(width, scale=0.5)] if net.flip() else [])]
    return [net.node("Reshape", [net.node("Gemm", inputs, (rows, width), **attrs), net.ints(*shape)], shape)]


def layer_norm(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Add", [x, net.partner(shape, x)], shape)
    width = shape[-1]
    scale = net.constant((1.0 + net.rng.random(width)).astype(net.dtype))
    return [net.node("LayerNormalization", [x, scale, net.weight(width, scale=0.5)], shape, epsilon=1e-2), x]


def gelu(net: Net, x: str) -> list[str]:
    """Append Gelu as exporters write it out."""
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Add", [x, net.weight(shape[-1], scale=0.5)], shape)
    inner = net.node("Div", [x, net.scalar(float(np.sqrt(2.0)))], shape)
    one = net.node("Add", [net.node("Erf", [inner], shape), net.scalar(1.0)], shape)
    if net.flip():
        return [net.node("Mul", [net.node("Mul", [x, one], shape), net.scalar(0.5)], shape)]
    return [net.node("Mul", [net.node("Mul", [x, net.scalar(0.5)], shape), one], shape)]


def attention(net: Net, x: str) -> list[str]:
    batch, length, width = net.shapes[x]
    if width % HEADS:
        return unary(net, x)
    size = width // HEADS
    split = net.ints(batch, length, HEADS, size)
    parts = []
    for perm, shape in (((0, 2, 1, 3), (length, size)), ((0, 2, 3, 1), (size, length)), ((0, 2, 1, 3), (length, size))):
        heads = net.node("Reshape", [linear(net, x), split], (batch, length, HEADS, size))
        parts.append(net.node("Transpose", [heads], (batch, HEADS, *shape), perm=perm))
    scores = net.node("MatMul", parts[:2], (batch, HEADS, length, length))
    if net.flip():
        scores = net.node("Mul", [scores, net.scalar(size**-0.5)], net.shapes[scores])
    else:
        scores = net.node("Div", [scores, net.scalar(size**0.5)], net.shapes[scores])
    weights = net.node("Softmax", [scores], net.shapes[scores], axis=-1)
    mixed = net.node("MatMul", [weights, parts[2]], (batch, HEADS, length, size))
    back = net.node("Transpose", [mixed], (batch, length, HEADS, size), perm=(0, 2, 1, 3))
    return [linear(net, net.node("Reshape", [back, net.ints(batch, length, width)], (batch, length, width)))]


def feed_forward(net: Net, x: str) -> list[str]:
    """Append two linear layers with an activation between them and a residual connection."""
    shape = net.shapes[x]
    inner = linear(net, x, 2 * shape[-1])
    inner = net.node(net.choose(["Gelu", "Relu"]), [inner], net.shapes[inner])
    y = linear(net, inner, shape[-1])
    return [net.node("Add", [x, y], shape) if net.flip() else y]


def written_out_norm(net: Net, x: str) -> list[str]:
    """Append the operators that exporters write for LayerNormalization, RMSNormalization or Softmax."""
    shape = net.shapes[x]
    narrow = (*shape[:-1], 1)
    last = net.ints(-1)
    kind = net.choose(["layer", "rms", "softmax"])
    if kind == "softmax":
        top = net.node("ReduceMax", [x, last], narrow, keepdims=1)
        y = net.node("Exp", [net.node("Sub", [x, top], shape)], shape)
        return [net.node("Div", [y, net.node("ReduceSum", [y, last], narrow, keepdims=1)], shape)]
    if kind == "layer":
        x = net.node("Sub", [x, net.node("ReduceMean", [x, last], narrow, keepdims=1)], shape)
    square = net.node("Mul", [x, x], shape) if net.flip() else net.node("Pow", [x, net.scalar(2.0)], shape)
    variance = net.node("ReduceMean", [square, last], narrow, keepdims=1)
    root = net.node("Sqrt", [net.node("Add", [variance, net.scalar(1e-2)], narrow)], narrow)
    y = net.node("Div", [x, root], shape)
    y = net.node("Mul", [y, net.weight(shape[-1], scale=1.0)], shape)
    return [net.node("Add", [y, net.weight(shape[-1], scale=0.5)], shape) if kind == "layer" else y]


def tanh_gelu(net: Net, x: str) -> list[str]:
    """Append Gelu's tanh approximation, written out or as an attribute."""
    shape = net.shapes[x]
    if net.flip():
        return [net.node("Gelu", [x], shape, approximate="tanh")]
    cube = net.node("Mul", [net.node("Pow", [x, net.scalar(3.0)], shape), net.scalar(0.044715)], shape)
    inner = net.node("Mul", [net.node("Add", [x, cube], shape), net.scalar(float(np.sqrt(2.0 / np.pi)))], shape)
    one = net.node("Add", [net.node("Tanh", [inner], shape), net.scalar(1.0)], shape)
    return [net.node("Mul", [net.node("Mul", [x, net.scalar(0.5)], shape), one], shape)]


def fused_attention(net: Net, x: str) -> list[str]:
    """Append opset 23's Attention, with or without a mask."""
    shape = net.shapes[x]
    if shape[-1] % HEADS:
        return unary(net, x)
    parts = [linear(net, x) for _ in range(3)]
    if net.flip():
        mask = np.where(np.tri(shape[1]), 0.0, -1e4).astype(net.dtype)
        parts.append(net.constant(mask))
    attrs = {"is_causal": 1} if len(parts) == 3 and net.flip() else {}
    y = net.node("Attention", parts, shape, q_num_heads=HEADS, kv_num_heads=HEADS, **attrs)
    return [linear(net, y)]


def transposed_products(net: Net, x: str) -> list[str]:
    """Append products with transposed operands or with the unit matrix."""
    batch, length, width = net.shapes[x]
    if net.flip():
        unit = net.constant(np.eye(width, dtype=net.dtype))
        return [net.node("MatMul", [x, unit], net.shapes[x])]
    turned = net.node("Transpose", [x], (batch, width, length), perm=(0, 2, 1))
    if net.flip():
        square = net.node("MatMul", [x, turned], (batch, length, length))
        return [net.node("MatMul", [square, x], net.shapes[x])]
    left = net.node("MatMul", [net.weight(width, width), turned], (batch, width, length))
    return [net.node("Transpose", [left], net.shapes[x], perm=(0, 2, 1))]


SEQUENCE_BLOCKS: tuple[Block, ...] = (
    reshapes, split_concat, matmul, parallel_matmuls, product_sums, gemm, layer_norm, gelu, attention, feed_forward,
    written_out_norm, tanh_gelu, fused_attention, transposed_products,
)  # fmt: skip
