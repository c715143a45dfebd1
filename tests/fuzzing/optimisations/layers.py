"""Steps with weights: products, convolutions, normalisations, pools, recurrent layers."""

from __future__ import annotations

import numpy as np

from tests.fuzzing.optimisations.builder import FLOAT, INT8, UINT8, Builder, Unfit, Value
from tests.fuzzing.optimisations.registry import images, matrices, sequences, single_sequences, step, tensors

_WIDTHS = (2, 3, 4, 8, 12)
_CHANNELS = (2, 3, 4, 8, 16)


@step(matrices, 4.0)
def linear(b: Builder, x: Value) -> Value:
    """A product with weights, with a bias and an activation or without."""
    width, to = x.dim(-1), b.choice((*_WIDTHS, x.dim(-1)))
    y = b.op("MatMul", x, b.weight(width, to, dtype=x.dtype, fan_in=width))
    if b.chance(0.6):
        y = b.op("Add", y, b.weight(to, dtype=x.dtype))
    return b.op(b.choice(("Relu", "Gelu", "Tanh")), y) if b.chance(0.4) else y


@step(matrices, 2.0)
def linears_in_parallel(b: Builder, x: Value) -> Value:
    """Products of one operand with several weights, put together."""
    width, count = x.dim(-1), b.choice((2, 3))
    to, biased = b.choice(_WIDTHS), b.chance(0.5)
    found = []
    for _ in range(count):
        y = b.op("MatMul", x, b.weight(width, to, dtype=x.dtype, fan_in=width))
        found.append(b.op("Add", y, b.weight(to, dtype=x.dtype)) if biased else y)
    if b.chance(0.4):
        return b.op("Concat", *found, axis=-1)
    return b.op("Sum", *found) if b.chance(0.4) else b.op("Mul", b.op("Add", *found[:2]), b.op("Tanh", found[-1]))


@step(matrices, 1.5)
def chain_of_products(b: Builder, x: Value) -> Value:
    width = x.dim(-1)
    for _ in range(b.choice((2, 3))):
        to = b.choice(_WIDTHS)
        x = b.op("MatMul", x, b.weight(width, to, dtype=x.dtype, fan_in=width))
        width = to
    return x


@step(matrices, 2.0)
def gemm(b: Builder, x: Value) -> Value:
    if x.rank != 2:
        raise Unfit("Gemm takes matrices")
    rows, width = x.shape[0], x.dim(1)
    turned, to = b.chance(0.5), b.choice(_WIDTHS)
    weight = b.weight(*((to, width) if turned else (width, to)), dtype=x.dtype, fan_in=width)
    attrs = {"alpha": b.choice((1.0, 0.5)), "beta": b.choice((1.0, 2.0))} if b.chance(0.4) else {}
    if isinstance(rows, int) and b.chance(0.2):
        x = b.op("Transpose", x, perm=[1, 0])
        attrs["transA"] = 1
    bias = [b.weight(to, dtype=x.dtype)] if b.chance(0.7) else []
    return b.op("Gemm", x, weight, *bias, transB=int(turned), **attrs)


@step(matrices, 1.5)
def product_of_values(b: Builder, x: Value) -> Value:
    """A product of two values, one of them turned."""
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    other = b.like(x, 0.0)
    turned = b.op("Transpose", other, perm=order)
    scale = b.constant(1.0 / np.sqrt(x.dim(-1)), x.dtype)
    y = b.op("MatMul", *((x, turned) if b.chance(0.7) else (turned, x)))
    return b.op("Mul", y, scale) if b.chance(0.7) else b.op("Transpose", y, perm=order)


@step(matrices, 0.7)
def einsum(b: Builder, x: Value) -> Value:
    if x.rank not in (2, 3):
        raise Unfit("two or three axes")
    width = x.dim(-1)
    equation = b.choice(("ij,jk->ik", "ij,kj->ik") if x.rank == 2 else ("bij,jk->bik", "bij,kj->bik"))
    to = b.choice(_WIDTHS)
    shape = (to, width) if "kj" in equation else (width, to)
    return b.op("Einsum", x, b.weight(*shape, dtype=x.dtype, fan_in=width), equation=equation)


@step(matrices, 0.6)
def integer_product(b: Builder, x: Value) -> Value:
    if x.dtype != FLOAT:
        raise Unfit("float32 only")
    width = x.dim(-1)
    scale, zero = b.constant(0.05, FLOAT), b.constant(0, INT8)
    q = b.op("QuantizeLinear", x, scale, zero)
    w = b.constant(b.numbers.integers(-100, 100, (width, b.choice(_WIDTHS))), INT8)
    y = b.op("Cast", b.op("MatMulInteger", q, w), to=FLOAT)
    return b.op("Mul", y, b.constant(0.0005, FLOAT))


@step(tensors, 0.8)
def quantised_layer(b: Builder, x: Value) -> Value:
    """A product or a convolution between QuantizeLinear and DequantizeLinear, as after static quantisation."""
    if x.dtype != FLOAT or x.rank not in (2, 3, 4):
        raise Unfit("float32 only")
    is_image = x.rank == 4
    width, to = x.dim(1 if is_image else -1), b.choice((2, 4, 8))
    shape = (to, width, 3, 3) if is_image else (width, to)
    codes = b.constant(b.numbers.integers(-127, 128, shape), INT8)
    scales = b.numbers.uniform(0.002, 0.01, to) if b.chance(0.5) else np.array(0.005)
    zeros = b.constant(np.zeros(scales.shape), INT8)
    weight = b.op("DequantizeLinear", codes, b.constant(scales, FLOAT), zeros, axis=0 if is_image else 1)
    scale, zero = b.constant(0.03125, FLOAT), b.constant(128, UINT8)
    x = b.op("DequantizeLinear", b.op("QuantizeLinear", x, scale, zero), scale, zero)
    y = b.op("Conv", x, weight, pads=[1, 1, 1, 1]) if is_image else b.op("MatMul", x, weight)
    y = b.op("Relu", y) if b.chance(0.5) else y
    return b.op("DequantizeLinear", b.op("QuantizeLinear", y, scale, zero), scale, zero)


@step(images, 20.0)
def convolution(b: Builder, x: Value) -> Value:
    """A convolution of many forms, with BatchNormalization and an activation or without."""
    channels, to = x.dim(1), b.choice(_CHANNELS)
    kernel = b.choice(((1, 1), (3, 3), (3, 3), (1, 3), (3, 1), (5, 5), (1, 7)))
    group = 1
    if b.chance(0.25):
        group = b.choice([g for g in (2, 4, channels) if channels % g == 0] or [1])
        to = group * b.choice((1, 2))
    attrs = {"pads": [k // 2 for k in kernel] * 2}
    if b.chance(0.2):
        attrs["strides"] = [2, 2]
    if b.chance(0.15) and kernel == (3, 3):
        attrs |= {"dilations": [2, 2], "pads": [2, 2, 2, 2]}
    if b.chance(0.2) and max(kernel) > 1:
        x = b.op("Pad", x, b.ints(0, 0, *attrs["pads"][:2], 0, 0, *attrs["pads"][2:]))
        attrs["pads"] = [0, 0, 0, 0]
    fan_in = channels // group * kernel[0] * kernel[1]
    weight = b.weight(to, channels // group, *kernel, dtype=x.dtype, fan_in=fan_in)
    bias = [b.weight(to, dtype=x.dtype)] if b.chance(0.6) else []
    y = b.op("Conv", x, weight, *bias, group=group, kernel_shape=list(kernel), **attrs)
    if b.chance(0.4):
        y = batch_normalization(b, y)
    return b.op(b.choice(("Relu", "Relu", "Sigmoid", "Clip", "LeakyRelu", "Tanh")), y) if b.chance(0.5) else y


@step(images, 6.0)
def convolutions_in_parallel(b: Builder, x: Value) -> Value:
    channels, to, k = x.dim(1), b.choice(_CHANNELS), b.choice((1, 3))
    found = []
    for number in range(b.choice((2, 3))):
        own = k if b.chance(0.7) else (1 if number else 3)
        weight = b.weight(to, channels, own, own, dtype=x.dtype, fan_in=channels * own * own)
        bias = [b.weight(to, dtype=x.dtype)] if b.chance(0.6) else []
        found.append(b.op("Conv", x, weight, *bias, kernel_shape=[own, own], pads=[own // 2] * 4))
    return b.op("Concat", *found, axis=1) if b.chance(0.5) else b.op("Add", *found[:2])


@step(images, 3.0)
def residual(b: Builder, x: Value) -> Value:
    """Two convolutions with a way around them."""
    channels = x.dim(1)
    y = x
    for _ in range(2):
        weight = b.weight(channels, channels, 3, 3, dtype=x.dtype, fan_in=9 * channels)
        y = b.op("Conv", y, weight, b.weight(channels, dtype=x.dtype), pads=[1, 1, 1, 1])
        y = b.op("Relu", y)
    return b.op("Relu", b.op("Add", y, x))


@step(images, 0.5)
def transposed_convolution(b: Builder, x: Value) -> Value:
    channels, to = x.dim(1), b.choice((2, 3, 4))
    return b.op("ConvTranspose", x, b.weight(channels, to, 2, 2, dtype=x.dtype, fan_in=channels * 4), strides=[2, 2])


@step(images, 3.0)
def batch_normalization(b: Builder, x: Value) -> Value:
    c = x.dim(1)
    means = [b.weight(c, dtype=x.dtype) for _ in range(2)]
    return b.op("BatchNormalization", x, b.positive(c, dtype=x.dtype), *means, b.positive(c, dtype=x.dtype))


@step(images, 5.0)
def pool(b: Builder, x: Value) -> Value:
    name = b.choice(
        ("MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool", "LpPool", "MaxPool", "AveragePool")
    )
    if name.startswith("Global"):
        return b.op(name, x)
    size, stride = b.choice(((2, 2), (3, 2), (3, 1), (1, 1), (1, 2)))
    if isinstance(x.shape[2], int) and x.shape[2] < size:
        raise Unfit("the image is too small")
    attrs = {"count_include_pad": int(b.chance(0.5))} if name == "AveragePool" and b.chance(0.5) else {}
    y = b.op(name, x, kernel_shape=[size, size], strides=[stride, stride], pads=[size // 2] * 4 if size == 3 else None,
             **attrs)  # fmt: skip
    return b.op("Relu", y) if b.chance(0.3) else y


@step(images, 3.0)
def image_normalization(b: Builder, x: Value) -> Value:
    channels = x.dim(1)
    match b.rng.randrange(3):
        case 0:
            scale, bias = b.positive(channels, dtype=x.dtype), b.weight(channels, dtype=x.dtype)
            return b.op("InstanceNormalization", x, scale, bias)
        case 1:
            scale, bias = b.positive(channels, dtype=x.dtype), b.weight(channels, dtype=x.dtype)
            return b.op("GroupNormalization", x, scale, bias, num_groups=1)
        case _:
            return b.op("LRN", x, size=3)


@step(tensors, 1.5)
def normalization(b: Builder, x: Value) -> Value:
    """A normalisation over the last axis."""
    width = x.dim(-1)
    match b.rng.randrange(4):
        case 0 | 1:
            bias = [b.weight(width, dtype=x.dtype)] if b.chance(0.7) else []
            return b.op("LayerNormalization", x, b.positive(width, dtype=x.dtype), *bias, axis=-1)
        case 2:
            return b.op("RMSNormalization", x, b.positive(width, dtype=x.dtype), axis=-1)
        case _:
            return b.op("LpNormalization", b.op("Add", x, b.positive(width, dtype=x.dtype)), axis=-1, p=2)


@step(tensors, 1.5)
def softmax(b: Builder, x: Value) -> Value:
    return b.op(b.choice(("Softmax", "Softmax", "LogSoftmax")), x, axis=b.choice((-1, x.rank - 1, -1, 0)))


@step(sequences, 0.8)
def convolution_over_time(b: Builder, x: Value) -> Value:
    channels, to = x.dim(1), b.choice((2, 4, 8))
    weight = b.weight(to, channels, 3, dtype=x.dtype, fan_in=3 * channels)
    return b.op("Conv", x, weight, b.weight(to, dtype=x.dtype), pads=[1, 1])


@step(single_sequences, 0.5)
def recurrent(b: Builder, x: Value) -> Value:
    width, hidden = x.dim(2), b.choice((2, 3))
    name, gates = b.choice((("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    w, r = (b.weight(1, gates * hidden, size, fan_in=size) for size in (width, hidden))
    y = b.op(name, x, w, r, hidden_size=hidden)
    return b.op("Squeeze", y, b.ints(1))


@step(images, 0.4)
def volume(b: Builder, x: Value) -> Value:
    """A convolution over frames, height and width."""
    frames = b.op("Unsqueeze", x, b.ints(1))
    to, kernel = b.choice((2, 4)), b.choice(((3, 3, 3), (3, 1, 1), (1, 3, 3)))
    weight = b.weight(to, 1, *kernel, dtype=x.dtype, fan_in=int(np.prod(kernel)))
    y = b.op("Conv", frames, weight, b.weight(to, dtype=x.dtype), pads=[k // 2 for k in kernel] * 2)
    y = b.op("Relu", y) if b.chance(0.5) else y
    return b.op("ReduceMean", y, b.ints(2), keepdims=0)
