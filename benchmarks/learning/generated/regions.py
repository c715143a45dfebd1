"""Families of networks that mix the positions of an image with those near by, and channels after that."""

from __future__ import annotations

import numpy as np

from benchmarks.learning.generated.builder import NamedTensor, NetworkBuilder


def rolled(net: NetworkBuilder) -> NamedTensor:
    """Layers that mix the positions within regions of an image, then channels; every second one rolls the image first,
    so that regions meet (Guo et al. 2022, arXiv:2108.13341). Where channels double, every second pixel is put beside
    its neighbours (Shi et al. 2016, arXiv:1609.05158)."""
    region, count, hidden = net.draw(4, 7, 8), net.draw(2, 4, 8), net.draw(32, 64, 96)
    side, act = region * count, net.draw("gelu", "erf", "silu")
    x = net.linear(net.input("pixels", 1, side, side, 24), hidden)
    for layer in range(4):
        shift = region // 2 if layer % 2 else 0
        y = _regions(net, _rolled(net, net.layer_norm(x), shift), region)
        y = net.linear(y, hidden)
        mixed = net.linear(net.transpose(y, 0, 2, 1), region * region)
        y = net.linear(net.transpose(mixed, 0, 2, 1), hidden)
        x = net.add(x, _rolled(net, _image(net, y, side, region), -shift))
        y = net.activation(act, net.linear(net.layer_norm(x), 2 * hidden))
        x = net.add(x, net.linear(y, hidden))
        if layer == 1:
            side, hidden = side // 2, 2 * hidden
            x = net.linear(net.layer_norm(_merged(net, x)), hidden)
            region = region if side % region == 0 else side
    return net.classifier(net.reshape(x, 1, side * side, hidden))


def pyramid(net: NetworkBuilder) -> NamedTensor:
    """Stages of ever fewer positions and more channels. Their layers mix positions by a depthwise convolution, a gate
    made by one, or an average pool, and then channels (Yu et al. 2022, arXiv:2111.11418; Guo et al. 2023,
    arXiv:2202.09741)."""
    side, hidden = net.draw(28, 40, 56), net.draw(32, 48, 64)
    mixing, kernel = net.draw("depthwise", "gate", "pool"), net.draw(5, 7)
    act, ratio = net.draw("gelu", "erf", "silu"), net.draw(3, 4)
    x = net.conv(net.input("pixel_values", 1, 3, 2 * side, 2 * side), hidden, 3, stride=2)
    for stage in range(3):
        if stage:
            x = net.conv(x, 2 * x.channels, 3, stride=2)
        for _ in range(net.draw(1, 2)):
            x = net.add(x, _near(net, _normalised(net, x), mixing, kernel))
            rows = net.layer_norm(net.transpose(x, 0, 2, 3, 1))
            rows = net.linear(net.activation(act, net.linear(rows, ratio * x.channels)), x.channels)
            x = net.add(x, net.transpose(rows, 0, 3, 1, 2))
    return net.classifier(x)


def _normalised(net: NetworkBuilder, x: NamedTensor) -> NamedTensor:
    """Return an image whose pixels are normalised over the channels."""
    return net.transpose(net.layer_norm(net.transpose(x, 0, 2, 3, 1)), 0, 3, 1, 2)


def _near(net: NetworkBuilder, x: NamedTensor, mixing: str, kernel: int) -> NamedTensor:
    """Return an image of which each pixel knows those around it."""
    if mixing == "pool":
        return net.binary("Sub", net.pool("AveragePool", x), x)
    mixed = net.conv(x, x.channels, kernel, groups=x.channels)
    return net.mul(x, net.conv(mixed, x.channels, 1)) if mixing == "gate" else mixed


def _regions(net: NetworkBuilder, x: NamedTensor, region: int) -> NamedTensor:
    """Return [1, side, side, channels] as [regions, positions of a region, channels]."""
    side, channels = x.shape[1], x.shape[3]
    count = side // region
    cut = net.transpose(net.reshape(x, 1, count, region, count, region, channels), 0, 1, 3, 2, 4, 5)
    return net.reshape(cut, count * count, region * region, channels)


def _image(net: NetworkBuilder, x: NamedTensor, side: int, region: int) -> NamedTensor:
    """Return regions as an image."""
    channels, count = x.shape[2], side // region
    joined = net.transpose(net.reshape(x, 1, count, count, region, region, channels), 0, 1, 3, 2, 4, 5)
    return net.reshape(joined, 1, side, side, channels)


def _rolled(net: NetworkBuilder, x: NamedTensor, shift: int) -> NamedTensor:
    """Roll an image by some pixels along both sides, as exporters write it."""
    for axis in (1, 2) if shift else ():
        begin = shift % x.shape[axis]
        parts = _sliced(net, x, axis, begin, x.shape[axis], 1), _sliced(net, x, axis, 0, begin, 1)
        x = net.concat(parts, axis)
    return x


def _merged(net: NetworkBuilder, x: NamedTensor) -> NamedTensor:
    """Return an image of half the side, with the channels of four pixels in each."""
    side = x.shape[1]
    rows = [_sliced(net, x, 1, begin, side, 2) for begin in (0, 1)]
    return net.concat([_sliced(net, one, 2, begin, side, 2) for begin in (0, 1) for one in rows], 3)


def _sliced(net: NetworkBuilder, x: NamedTensor, axis: int, begin: int, end: int, step: int) -> NamedTensor:
    bounds = (net.constant(np.array([number], np.int64)) for number in (begin, end, axis, step))
    shape = (*x.shape[:axis], len(range(begin, end, step)), *x.shape[axis + 1 :])
    return net.op("Slice", [x, *bounds], shape)
