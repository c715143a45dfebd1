"""The windows of convolutions and poolings: the elements of an image that each one sees, as indices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_rewrite.soundness.domains.domain import Array

OUTSIDE = -1
"""In an array of windows: an element of the padding."""
BEYOND = -2
"""In an array of windows: outside of the padding as well, where `ceil_mode` rounds the output's size up."""


def windows(attrs: Mapping[str, Any], sizes: tuple[int, ...], kernel: tuple[int, ...]) -> tuple[Array, tuple[int, ...]]:
    """Indices into the flattened spatial axes of the given `sizes`, [windows, kernel elements], and the output's
    spatial shape. `attrs` are those of Conv, MaxPool or AveragePool (ONNX's operator documentation)."""
    ones = (1,) * len(sizes)
    strides, dilations = tuple(attrs.get("strides", ones)), tuple(attrs.get("dilations", ones))
    pads = _pads(attrs, sizes, tuple(kernel), strides, dilations)
    return _windows(tuple(sizes), tuple(kernel), strides, dilations, pads, bool(attrs.get("ceil_mode", 0)))


@functools.lru_cache(maxsize=256)
def _windows(
    sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...],
    pads: tuple[int, ...], ceil: bool,
) -> tuple[Array, tuple[int, ...]]:  # fmt: skip
    rank, shape = len(sizes), []
    for i, (size, k) in enumerate(zip(sizes, kernel, strict=True)):
        room = size + pads[i] + pads[rank + i] - (dilations[i] * (k - 1) + 1)
        steps = -(-room // strides[i]) if ceil else room // strides[i]
        if ceil and steps * strides[i] >= size + pads[i]:
            steps -= 1  # a window must not start in the padding at the end
        shape.append(steps + 1)
    found = np.empty((math.prod(shape), math.prod(kernel)), dtype=np.int64)
    for w, place in enumerate(itertools.product(*map(range, shape))):
        for k, offset in enumerate(itertools.product(*map(range, kernel))):
            at = [place[i] * strides[i] - pads[i] + offset[i] * dilations[i] for i in range(rank)]
            found[w, k] = _index(at, sizes, pads[rank:])
    return found, tuple(shape)


def _index(at: list[int], sizes: tuple[int, ...], after: tuple[int, ...]) -> int:
    if any(c >= size + pad for c, size, pad in zip(at, sizes, after, strict=True)):
        return BEYOND
    flat = 0
    for c, size in zip(at, sizes, strict=True):
        if not 0 <= c < size:
            return OUTSIDE
        flat = flat * size + c
    return flat


def _pads(
    attrs: Mapping[str, Any], sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:  # fmt: skip
    mode = attrs.get("auto_pad", "NOTSET")
    if mode == "VALID":
        return (0,) * (2 * len(sizes))
    if mode == "NOTSET":
        return tuple(attrs.get("pads", (0,) * (2 * len(sizes))))
    before, after = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small = total // 2 if mode == "SAME_UPPER" else total - total // 2
        before.append(small)
        after.append(total - small)
    return (*before, *after)
