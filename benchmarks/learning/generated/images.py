"""Families of networks of images: what architecture search and people put together out of convolutions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from benchmarks.learning.generated.builder import NamedTensor, NetworkBuilder


def _separable(net: NetworkBuilder, x: NamedTensor, kernel: int, stride: int) -> NamedTensor:
    channels = x.channels
    for step in (stride, 1):
        x = net.conv(net.unary("Relu", x), channels, kernel, stride=step, groups=channels)
        x = net.conv(x, channels, 1)
    return x


def _factorised(net: NetworkBuilder, x: NamedTensor, stride: int) -> NamedTensor:
    size = net.draw(3, 5, 7)
    x = net.conv(net.unary("Relu", x), x.channels, (1, size), stride=stride)
    return net.conv(x, x.channels, (size, 1))


_OPERATIONS: dict[str, Callable[[NetworkBuilder, NamedTensor, int], NamedTensor]] = {
    "separable 3x3": lambda net, x, stride: _separable(net, x, 3, stride),
    "separable 5x5": lambda net, x, stride: _separable(net, x, 5, stride),
    "dilated 3x3": lambda net, x, stride: net.conv(
        net.conv(net.unary("Relu", x), x.channels, 3, stride=stride, groups=x.channels, dilation=2), x.channels, 1
    ),
    "convolution 3x3": lambda net, x, stride: net.conv(net.unary("Relu", x), x.channels, 3, stride=stride),
    "factorised": _factorised,
    "maximum 3x3": lambda net, x, stride: net.pool("MaxPool", x, 3, stride),
    "average 3x3": lambda net, x, stride: net.pool("AveragePool", x, 3, stride),
    "skip": lambda net, x, stride: x if stride == 1 else net.conv(net.unary("Relu", x), x.channels, 1, stride=stride),
}


def nas_cells(net: NetworkBuilder) -> NamedTensor:
    """Cells as DARTS searches them (Liu et al. 2019, arXiv:1806.09055, section 2.1): four nodes, each the sum of two
    operations on earlier ones, joined; one normal and one reduction cell are drawn and stacked."""
    channels, size = net.draw(16, 24, 36, 48), net.draw(32, 48, 64)
    draws = [[[_choice(net, node) for _ in range(2)] for node in range(4)] for _ in range(2)]
    before = net.conv(net.input("pixel_values", 1, 3, size, size), 3 * channels)
    x = before
    for place in range(net.draw(4, 5, 6)):
        reducing = place in (1, 3)
        channels *= 2 if reducing else 1
        before, x = x, _cell(net, draws[reducing], before, x, channels, 2 if reducing else 1)
    return net.classifier(x)


def _choice(net: NetworkBuilder, node: int) -> tuple[str, int]:
    return net.draw(*_OPERATIONS), int(net.rng.integers(node + 2))


def _cell(
    net: NetworkBuilder,
    nodes: list[list[tuple[str, int]]],
    before: NamedTensor,
    x: NamedTensor,
    channels: int,
    stride: int,
) -> NamedTensor:
    shrunk = before.shape[2] // x.shape[2]
    states = [
        net.conv(net.unary("Relu", before), channels, 1, stride=shrunk), net.conv(net.unary("Relu", x), channels, 1)
    ]  # fmt: skip
    for node in nodes:
        one, other = (_OPERATIONS[name](net, states[i], stride if i < 2 else 1) for name, i in node)
        states.append(net.add(one, other))
    return net.concat(states[2:])


def residual(net: NetworkBuilder) -> NamedTensor:
    """Residual blocks, basic or bottleneck, with or without groups (He et al. 2016; Xie et al. 2017)."""
    width, size, deep = net.draw(32, 48, 64, 96), net.draw(56, 64, 96, 112), net.draw(True, False)
    groups, act = net.draw(1, 1, 8, 16) if deep else 1, net.draw("relu", "relu", "silu")
    x = net.activation(act, net.conv(net.input("pixel_values", net.draw(1, 1, 2), 3, size, size), width, 7, stride=2))
    for stage in range(net.draw(2, 3)):
        for block in range(net.draw(1, 2, 3)):
            x = _residual_block(net, x, width << stage, 2 if stage and not block else 1, groups, act, deep)
    return net.classifier(x)


def _residual_block(
    net: NetworkBuilder, x: NamedTensor, width: int, stride: int, groups: int, act: str, deep: bool
) -> NamedTensor:
    wide = 2 * width if deep else width
    y = net.activation(act, net.conv(x, width, 1)) if deep else x
    y = net.activation(act, net.conv(y, width, 3, stride=stride, groups=groups))
    y = net.conv(y, wide, 1 if deep else 3)
    short = x if (x.channels, stride) == (wide, 1) else net.conv(x, wide, 1, stride=stride)
    return net.activation(act, net.add(y, short))


def inverted(net: NetworkBuilder) -> NamedTensor:
    """Inverted residuals with squeeze and excitation (Howard et al. 2019, arXiv:1905.02244; Tan and Le 2019)."""
    width, size = net.draw(16, 24, 32), net.draw(64, 96, 128)
    act, excite, expansion = net.draw("hardswish", "silu", "relu6"), net.draw(True, True, False), net.draw(3, 4, 6)
    x = net.activation(act, net.conv(net.input("pixel_values", 1, 3, size, size), width, 3, stride=2))
    for stage in range(net.draw(3, 4)):
        kernel = net.draw(3, 5)
        for block in range(net.draw(1, 2, 3)):
            x = _inverted_block(net, x, width + 8 * stage, expansion, kernel, 1 if block else 2, act, excite)
    return net.classifier(net.activation(act, net.conv(x, 4 * x.channels, 1)))


def _inverted_block(
    net: NetworkBuilder, x: NamedTensor, width: int, expansion: int, kernel: int, stride: int, act: str, excite: bool
) -> NamedTensor:
    wide = expansion * x.channels
    y = net.activation(act, net.conv(x, wide, 1))
    y = net.activation(act, net.conv(y, wide, kernel, stride=stride, groups=wide))
    if excite:
        s = net.op("GlobalAveragePool", [y], (*y.shape[:2], 1, 1))
        s = net.conv(net.unary("Relu", net.conv(s, max(8, wide // 16), 1)), wide, 1)
        y = net.mul(y, net.unary(net.draw("Sigmoid", "HardSigmoid"), s))
    y = net.conv(y, width, 1)
    return net.add(x, y) if (x.channels, stride) == (width, 1) else y


def branches(net: NetworkBuilder) -> NamedTensor:
    """Modules of parallel branches, as Inception's (Szegedy et al. 2016, arXiv:1512.00567, figures 5 to 7)."""
    size, width = net.draw(64, 96, 128), net.draw(32, 48, 64)
    x = net.unary("Relu", net.conv(net.input("pixel_values", 1, 3, size, size), width, 3, stride=2))
    x = net.pool("MaxPool", net.unary("Relu", net.conv(x, 2 * width, 3)), 3, 2)
    for module in range(net.draw(3, 4, 5)):
        found = [net.unary("Relu", net.conv(x, width, 1))]
        for _ in range(net.draw(2, 3)):
            y = net.unary("Relu", net.conv(x, net.draw(width // 2, width), 1))
            for kernel in net.draw((3,), (3, 3), (5,), ((1, 7), (7, 1)), ((1, 5), (5, 1))):
                y = net.unary("Relu", net.conv(y, width, kernel))
            found.append(y)
        found.append(net.unary("Relu", net.conv(net.pool("AveragePool", x), width // 2, 1)))
        x = net.concat(found)
        if module == 1:
            x = net.pool("MaxPool", x, 3, 2)
    return net.classifier(x)


def dense(net: NetworkBuilder) -> NamedTensor:
    """Dense blocks: every layer reads all before it (Huang et al. 2017, arXiv:1608.06993)."""
    size, growth = net.draw(48, 64, 96), net.draw(12, 16, 24, 32)
    x = net.conv(net.input("pixel_values", 1, 3, size, size), 2 * growth, 7, stride=2)
    for block in range(net.draw(2, 3)):
        for _ in range(net.draw(3, 4, 6)):
            y = _scaled(net, x)
            y = net.unary("Relu", net.conv(y, 4 * growth, 1))
            x = net.concat([x, net.conv(y, growth, 3)])
        if block == 0:
            x = net.pool("AveragePool", net.conv(_scaled(net, x), x.channels // 2, 1), 2, 2)
    return net.classifier(_scaled(net, x))


def _scaled(net: NetworkBuilder, x: NamedTensor) -> NamedTensor:
    """Add a BatchNorm before a convolution, which exporters cannot fold, and Relu."""
    size = x.channels
    spread = net.constant(np.abs(1.0 + 0.1 * net.rng.standard_normal(size)).astype(np.float32))
    norm = [x, net.vector(size, 1.0), net.vector(size), net.vector(size), spread]
    return net.unary("Relu", net.op("BatchNormalization", norm, x.shape, epsilon=1e-5))


def decoder(net: NetworkBuilder) -> NamedTensor:
    """An encoder and a decoder with skips, or dilated convolutions in place of both (Ronneberger et al. 2015; Yu and
    Koltun 2016): networks of segmentation."""
    size, width = net.draw(64, 96, 128), net.draw(16, 24, 32, 48)
    x, skips = net.input("pixel_values", 1, 3, size, size), list[NamedTensor]()
    for level in range(levels := net.draw(2, 3)):
        for _ in range(2):
            x = net.unary("Relu", net.conv(x, width << level))
        skips.append(x)
        x = net.pool("MaxPool", x, 2, 2)
    for rate in net.draw((1,), (1, 2), (2, 4)):
        x = net.unary("Relu", net.conv(x, width << levels, 3, dilation=rate))
    for skip in reversed(skips):
        mode = net.draw("nearest", "linear")
        x = net.concat([_doubled(net, x, mode), skip])
        for _ in range(2):
            x = net.unary("Relu", net.conv(x, skip.channels))
    return net.conv(x, 4, 1)


def _doubled(net: NetworkBuilder, x: NamedTensor, mode: str) -> NamedTensor:
    scales = net.constant(np.array([1.0, 1.0, 2.0, 2.0], np.float32))
    shape = (*x.shape[:2], 2 * x.shape[2], 2 * x.shape[3])
    places = {"nearest": "asymmetric", "linear": "half_pixel"}[mode]
    return net.op("Resize", [x, "", scales], shape, mode=mode, coordinate_transformation_mode=places)


_ENLARGERS: dict[str, Callable[[NetworkBuilder, NamedTensor, int], NamedTensor]] = {
    "transposed 4x4": lambda net, x, channels: _transposed(net, x, channels, 4, 1),
    "transposed 2x2": lambda net, x, channels: _transposed(net, x, channels, 2, 0),
    "nearest, 3x3": lambda net, x, channels: net.conv(_doubled(net, x, "nearest"), channels),
    "linear, 1x1": lambda net, x, channels: net.conv(_doubled(net, x, "linear"), channels, 1),
    "nearest, 1x1": lambda net, x, channels: net.conv(_doubled(net, x, "nearest"), channels, 1),
}


def enlarging(net: NetworkBuilder) -> NamedTensor:
    """Layers that double an image until it is large: generators and the decoding halves of autoencoders (Radford et al.
    2016, arXiv:1511.06434; Odena et al. 2016, "Deconvolution and Checkerboard Artifacts")."""
    size, width, levels = net.draw(8, 12, 16), net.draw(16, 32, 64), net.draw(2, 3)
    act = net.draw("relu", "silu", "tanh")
    x = net.activation(act, net.conv(net.input("latent", 1, width << levels, size, size), width << levels))
    for level in reversed(range(levels)):
        for _ in range(net.draw(0, 1)):
            x = net.activation(act, net.conv(x, x.channels))
        x = net.activation(act, _ENLARGERS[net.draw(*_ENLARGERS)](net, x, width << level))
    return net.conv(x, 3)


def _transposed(net: NetworkBuilder, x: NamedTensor, channels: int, kernel: int, pad: int) -> NamedTensor:
    """Add a transposed convolution of stride 2 that doubles an image."""
    weight = net.weight(x.channels, channels, kernel, kernel, inputs=x.channels * kernel * kernel // 4)
    shape = (x.shape[0], channels, 2 * x.shape[2], 2 * x.shape[3])
    inputs = [x, weight, net.vector(channels)]
    return net.op("ConvTranspose", inputs, shape, kernel_shape=[kernel] * 2, strides=[2, 2], pads=[pad] * 4)
