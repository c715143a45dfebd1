"""Families of networks of sequences and of mixed kind: encoders, mixers, dilated and recurrent networks."""

from __future__ import annotations

import math

import numpy as np

from benchmarks.learning.generated.builder import NamedTensor, NetworkBuilder


def encoder(net: NetworkBuilder) -> NamedTensor:
    """Encoder layers in the variants that are in use: norm before or after, several activations and gates, biases or
    none, fewer heads for keys and values, an additive bias of positions."""
    heads, size = net.draw(2, 4, 6, 8), net.draw(32, 64)
    length = net.draw(32, 64, 128, 197)
    before, gated = net.draw(True, False), net.draw(False, False, True)
    bias, shared, positions = net.draw(True, True, False), net.draw(1, 1, 2), net.draw(True, False)
    act, norm = net.draw("gelu", "erf", "relu", "silu", "tanh"), net.draw("layer_norm", "layer_norm", "rms_norm")
    x = net.linear(net.input("features", net.draw(1, 1, 1, 4), length, 48), heads * size)
    table = net.constant(net.rng.standard_normal((1, heads, length, length), np.float32)) if positions else None
    for _ in range(net.draw(2, 3, 4)):
        for part in ("attention", "feed forward"):
            y = getattr(net, norm)(x) if before else x
            if part == "attention":
                y = attention(net, y, heads, heads // shared, bias, table)
            else:
                y = _feed_forward(net, y, net.draw(2, 3, 4), act, gated, bias)
            x = net.add(x, y) if before else getattr(net, norm)(net.add(x, y))
    return net.classifier(x)


def attention(
    net: NetworkBuilder, x: NamedTensor, heads: int, groups: int, bias: bool = True, table: NamedTensor | None = None
) -> NamedTensor:
    """Add attention with `heads` heads of queries that share `groups` of keys and values (Ainslie et al. 2023)."""
    batch, length, hidden = x.shape
    size = hidden // heads

    def split(y: NamedTensor, count: int) -> NamedTensor:
        y = net.transpose(net.reshape(y, batch, length, count, size), 0, 2, 1, 3)
        if count == heads:
            return y
        again = net.op(
            "Expand",
            [net.reshape(y, batch, count, 1, length, size),
             net.constant(np.array([batch, count, heads // count, length, size], np.int64))],
            (batch, count, heads // count, length, size),
        )  # fmt: skip
        return net.reshape(again, batch, heads, length, size)

    query = split(net.linear(x, hidden, bias=bias), heads)
    key, value = (split(net.linear(x, groups * size, bias=bias), groups) for _ in range(2))
    return net.linear(_mixed(net, query, key, value, table), hidden, bias=bias)


def _mixed(
    net: NetworkBuilder, query: NamedTensor, key: NamedTensor, value: NamedTensor, table: NamedTensor | None,
    scaled: str = "scores",
) -> NamedTensor:  # fmt: skip
    """Return the values that queries attend to, [batch, length, hidden]. `scaled` says whether the queries or their
    scores are."""
    batch, heads, length, size = query.shape
    scale = net.scalar(1.0 / math.sqrt(size))
    query = net.mul(query, scale) if scaled == "query" else query
    scores = net.matmul(query, net.transpose(key, 0, 1, 3, 2))
    scores = scores if scaled == "query" else net.mul(scores, scale)
    scores = scores if table is None else net.add(scores, table)
    mixed = net.matmul(net.unary("Softmax", scores, axis=-1), value)
    return net.reshape(net.transpose(mixed, 0, 2, 1, 3), batch, length, heads * size)


def packed(net: NetworkBuilder) -> NamedTensor:
    """Encoder layers of which one product gives queries, keys and values: reshaped to [batch, length, 3, heads, size],
    and taken apart by Slice, Gather or Split (Dosovitskiy et al. 2021, arXiv:2010.11929, in timm), with a bias
    of positions or none (Bao et al. 2022, arXiv:2106.08254)."""
    heads, size, bias = net.draw(3, 4, 6, 12), net.draw(32, 64), net.draw(True, True, False)
    batch, length = net.draw((1, 65), (1, 197), (4, 64), (16, 36))
    act, positions = net.draw("gelu", "erf"), net.draw(True, False)
    x = net.linear(net.input("features", batch, length, 48), heads * size)
    table = net.constant(net.rng.standard_normal((heads, length, length), np.float32)) if positions else None
    for _ in range(3):
        cut, scaled = net.draw("Slice", "Gather", "Split"), net.draw("query", "scores")
        y = net.linear(net.layer_norm(x), 3 * heads * size, bias=bias)
        query, key, value = _three(net, net.reshape(y, batch, length, 3, heads, size), cut)
        x = net.add(x, net.linear(_mixed(net, query, key, value, table, scaled), heads * size))
        x = net.add(x, _feed_forward(net, net.layer_norm(x), 4, act, False, True))
    return net.classifier(x)


def _three(net: NetworkBuilder, x: NamedTensor, cut: str) -> list[NamedTensor]:
    """Return [batch, length, 3, heads, size] as three values of [batch, heads, length, size]."""
    x, first = net.transpose(x, 2, 0, 3, 1, 4), net.constant(np.array([0], np.int64))
    one, shape = (1, *x.shape[1:]), x.shape[1:]
    if cut == "Gather":
        return [net.op("Gather", [x, net.index(i)], shape, axis=0) for i in range(3)]
    if cut == "Slice":
        bounds = [net.constant(np.array([i], np.int64)) for i in range(4)]
        parts = [net.op("Slice", [x, bounds[i], bounds[i + 1], first], one) for i in range(3)]
    else:
        parts = net.split(x, 3, axis=0)
    return [net.op("Squeeze", [part, first], shape) for part in parts]


def _feed_forward(net: NetworkBuilder, x: NamedTensor, ratio: int, act: str, gated: bool, bias: bool) -> NamedTensor:
    wide = ratio * x.shape[-1]
    y = net.activation(act, net.linear(x, wide, bias=bias))
    if gated:
        y = net.mul(y, net.linear(x, wide, bias=bias))
    return net.linear(y, x.shape[-1], bias=bias)


def mixer(net: NetworkBuilder) -> NamedTensor:
    """Layers that mix tokens by a product or a large depthwise convolution, then channels (Tolstikhin et al. 2021,
    arXiv:2105.01601; Liu et al. 2022, arXiv:2201.03545)."""
    side, hidden = net.draw(8, 14, 16, 28), net.draw(64, 96, 128, 192)
    by_product, act = net.draw(True, False), net.draw("gelu", "erf")
    image = net.conv(net.input("pixel_values", 1, 3, 2 * side, 2 * side), hidden, 3, stride=2)
    x = net.transpose(image, 0, 2, 3, 1)
    for _ in range(net.draw(2, 3, 4)):
        x = net.add(x, _tokens(net, x, act, by_product))
        y = net.layer_norm(x) if by_product else x
        x = net.add(x, net.linear(net.activation(act, net.linear(y, 4 * hidden)), hidden))
    return net.classifier(net.reshape(net.layer_norm(x), 1, side * side, hidden))


def _tokens(net: NetworkBuilder, x: NamedTensor, act: str, by_product: bool) -> NamedTensor:
    _, side, _, hidden = x.shape
    if not by_product:
        y = net.conv(net.transpose(x, 0, 3, 1, 2), hidden, 7, groups=hidden)
        return net.layer_norm(net.transpose(y, 0, 2, 3, 1))
    y = net.transpose(net.reshape(net.layer_norm(x), 1, side * side, hidden), 0, 2, 1)
    y = net.linear(net.activation(act, net.linear(y, max(16, side * side // 2))), side * side)
    return net.reshape(net.transpose(y, 0, 2, 1), 1, side, side, hidden)


def temporal(net: NetworkBuilder) -> NamedTensor:
    """Dilated convolutions over time with gates and skips (van den Oord et al. 2016, arXiv:1609.03499), or convolutions
    over clips (Tran et al. 2018, arXiv:1711.11248)."""
    if net.draw(True, False):
        width, x = net.draw(24, 32, 48), net.input("clip", 1, 3, net.draw(4, 8), 32, 32)
        for _ in range(net.draw(2, 3, 4)):
            y = net.unary("Relu", net.conv(x, width, net.draw(3, (1, 3, 3))))
            y = net.conv(y, width, net.draw(3, (3, 1, 1)))
            x = net.unary("Relu", net.add(x, y) if x.channels == width else y)
        return net.classifier(x)
    width = net.draw(32, 48, 64)
    x, total = net.conv(net.input("signal", 1, 8, net.draw(400, 800, 1600)), width, 3), None
    for layer in range(net.draw(4, 6)):
        filtered, gate = (net.conv(x, width, 3, dilation=1 << layer % 4) for _ in range(2))
        y = net.mul(net.unary("Tanh", filtered), net.unary("Sigmoid", gate))
        skip = net.conv(y, width, 1)
        total = skip if total is None else net.add(total, skip)
        x = net.add(x, net.conv(y, width, 1))
    assert total is not None
    return net.classifier(net.unary("Relu", net.conv(net.unary("Relu", total), width, 1)))


def recurrent(net: NetworkBuilder) -> NamedTensor:
    """Gated cells unrolled over a few steps, with products for each gate of their own or for all gates together."""
    hidden, steps, together = net.draw(128, 256, 384), net.draw(3, 4, 6), net.draw(True, False)
    batch = net.draw(1, 1, 8)
    h, c = net.input("state", batch, hidden), net.input("memory", batch, hidden)
    weights = [[net.weight(hidden, hidden, inputs=2 * hidden) for _ in range(4)] for _ in range(2)]
    joined = [net.weight(hidden, 4 * hidden, inputs=2 * hidden) for _ in range(2)]
    biases, whole = [net.vector(hidden) for _ in range(4)], net.vector(4 * hidden)
    for step in range(steps):
        x = net.input(f"x{step}", batch, hidden)
        if together:
            gates = net.add(net.add(net.matmul(x, joined[0]), net.matmul(h, joined[1])), whole)
            parts = [_slice(net, gates, i * hidden, hidden) for i in range(4)]
        else:
            pairs = zip(*weights, biases, strict=True)
            parts = [net.add(net.add(net.matmul(x, a), net.matmul(h, b)), bias) for a, b, bias in pairs]
        entering, forgetting, leaving = (net.unary("Sigmoid", part) for part in parts[:3])
        c = net.add(net.mul(forgetting, c), net.mul(entering, net.unary("Tanh", parts[3])))
        h = net.mul(leaving, net.unary("Tanh", c))
    return net.linear(h, 32)


def _slice(net: NetworkBuilder, x: NamedTensor, begin: int, size: int) -> NamedTensor:
    bounds = [net.constant(np.array([number], np.int64)) for number in (begin, begin + size, 1)]
    return net.op("Slice", [x, *bounds], (x.shape[0], size))


def hybrid(net: NetworkBuilder) -> NamedTensor:
    """Convolutions first and attention over what is left, as in mobile transformers (Mehta and Rastegari 2022)."""
    size, width, heads = net.draw(64, 96), net.draw(32, 48, 64), net.draw(2, 4)
    x = net.activation("silu", net.conv(net.input("pixel_values", 1, 3, size, size), width, 3, stride=2))
    for _ in range(2):
        y = net.activation("silu", net.conv(x, 2 * width, 1))
        y = net.activation("silu", net.conv(y, 2 * width, 3, stride=2, groups=2 * width))
        x = net.conv(y, width, 1)
    side = x.shape[2]
    tokens = net.transpose(net.reshape(x, 1, width, side * side), 0, 2, 1)
    for _ in range(net.draw(1, 2)):
        tokens = net.add(tokens, attention(net, net.layer_norm(tokens), heads, heads))
        tokens = net.add(tokens, _feed_forward(net, net.layer_norm(tokens), 2, "silu", False, True))
    back = net.reshape(net.transpose(tokens, 0, 2, 1), 1, width, side, side)
    return net.classifier(net.activation("silu", net.conv(net.concat([x, back]), 2 * width)))
