"""Blocks of convolutional networks, for values of shape [batch, channels, height, width]."""

from __future__ import annotations

from tests.random_models.net import Block, Net


def _convolve(net: Net, x: str, channels: int, kernel: int, group: int = 1) -> str:
    batch, inputs, height, width = net.shapes[x]
    weight = net.constant(
        (net.rng.standard_normal((channels, inputs // group, kernel, kernel)) / kernel).astype(net.dtype), "w"
    )
    bias = [net.weight(channels, scale=0.5)] if net.flip() else []
    pad = kernel // 2
    return net.node(
        "Conv",
        [x, weight, *bias],
        (batch, channels, height, width),
        kernel_shape=[kernel] * 2,
        pads=[pad] * 4,
        group=group,
    )


def convolution(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    group = net.choose([1, 1, shape[1], 2 if shape[1] % 2 == 0 else 1])
    y = _convolve(net, x, shape[1], net.choose([1, 3]), group)
    if net.flip():
        positive = [net.constant((0.5 + net.rng.random(shape[1])).astype(net.dtype)) for _ in range(2)]
        shifts = [net.weight(shape[1], scale=0.5) for _ in range(2)]
        y = net.node("BatchNormalization", [y, positive[0], *shifts, positive[1]], shape)
    return [net.node("Relu", [y], shape) if net.flip() else y]


def parallel_convolutions(net: Net, x: str) -> list[str]:
    """Append a fire module: parallel convolutions of one input, joined or added."""
    shape = net.shapes[x]
    parts = [_convolve(net, x, shape[1], kernel) for kernel in (1, net.choose([1, 3]))]
    if net.flip():
        parts = [net.node("Relu", [part], shape) for part in parts]
    kind = net.choose(["apart", "Add", "Concat"])
    if kind == "apart":
        return parts
    if kind == "Add":
        return [net.node("Add", parts, shape)]
    joined = net.node("Concat", parts, (shape[0], 2 * shape[1], *shape[2:]), axis=1)
    return [_convolve(net, joined, shape[1], 1)]


def pooling(net: Net, x: str) -> list[str]:
    shape = net.shapes[x]
    if net.flip():
        x = net.node("Relu", [x], shape)
    op = net.choose(["MaxPool", "AveragePool"])
    y = net.node(op, [x], shape, kernel_shape=[3, 3], pads=[1, 1, 1, 1])
    return [net.node("Relu", [y], shape) if net.flip() else y]


def convolution_tail(net: Net, x: str) -> list[str]:
    """Append a convolution with scale, shift, residual connection and activation."""
    shape = net.shapes[x]
    y = _convolve(net, x, shape[1], net.choose([1, 3]))
    for op in net.choose([["Mul"], ["Add"], ["Div", "Add"], []]):
        factors = net.constant((0.5 + net.rng.random((shape[1], 1, 1))).astype(net.dtype))
        y = net.node(op, [y, factors], shape)
    if net.flip():
        y = net.node("Add", [y, x], shape)
    if net.flip():
        y = net.node(net.choose(["Relu", "Sigmoid", "Tanh", "LeakyRelu"]), [y], shape)
    return [y]


def before_convolution(net: Net, x: str) -> list[str]:
    """Append a convolution of a padded, scaled or shifted value, or two convolutions in a row."""
    shape = net.shapes[x]
    kind = net.choose(["Pad", "Mul", "Add", "Conv", "BatchNormalization"])
    if kind == "Pad":
        wide = (*shape[:2], shape[2] + 2, shape[3] + 2)
        padded = net.node("Pad", [x, net.ints(0, 0, 1, 1, 0, 0, 1, 1)], wide)
        weight = net.constant((net.rng.standard_normal((shape[1], shape[1], 3, 3)) / 3).astype(net.dtype), "w")
        return [net.node("Conv", [padded, weight], shape, kernel_shape=[3, 3])]
    if kind == "Conv":
        inner = _convolve(net, x, 2 * shape[1], net.choose([1, 3]))
        return [_convolve(net, inner, shape[1], 1)]
    if kind == "BatchNormalization":
        positive = [net.constant((0.5 + net.rng.random(shape[1])).astype(net.dtype)) for _ in range(2)]
        shifts = [net.weight(shape[1], scale=0.5) for _ in range(2)]
        y = net.node(kind, [x, positive[0], *shifts, positive[1]], shape)
    else:
        y = net.node(kind, [x, net.constant((0.5 + net.rng.random((shape[1], 1, 1))).astype(net.dtype))], shape)
    return [_convolve(net, y, shape[1], 1)]


def global_pooling(net: Net, x: str) -> list[str]:
    """Append a gate per channel, computed by global pooling."""
    shape = net.shapes[x]
    narrow = (*shape[:2], 1, 1)
    if net.flip():
        pooled = net.node("GlobalAveragePool", [x], narrow)
    else:
        pooled = net.node("ReduceMean", [x, net.ints(2, 3)], narrow, keepdims=1)
    return [net.node("Mul", [x, net.node("Sigmoid", [_convolve(net, pooled, shape[1], 1)], narrow)], shape)]


def strided(net: Net, x: str) -> list[str]:
    """Append a strided pointwise convolution whose mean is added to its input."""
    shape = net.shapes[x]
    half = (*shape[:2], (shape[2] + 1) // 2, (shape[3] + 1) // 2)
    weight = net.weight(shape[1], shape[1], 1, 1)
    y = net.node("Conv", [x, weight], half, kernel_shape=[1, 1], strides=[2, 2])
    top = net.node("ReduceMean", [y, net.ints(2, 3)], (*shape[:2], 1, 1), keepdims=1)
    return [net.node("Add", [x, top], shape)]


IMAGE_BLOCKS: tuple[Block, ...] = (
    convolution, parallel_convolutions, pooling, convolution_tail, before_convolution, global_pooling, strided,
)  # fmt: skip
