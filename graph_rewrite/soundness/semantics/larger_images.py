"""The semantics of operators that make images larger: Resize and ConvTranspose."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from graph_rewrite.soundness.domains.domain import Array, Unsupported
from graph_rewrite.soundness.semantics.algebra import padded, product
from graph_rewrite.soundness.semantics.call import Call, Semantics, Tensor
from graph_rewrite.soundness.semantics.sliding_windows import OUTSIDE


def _conv_transpose(call: Call) -> Array:
    """ConvTranspose over any number of spatial axes: for every element of the result the elements that write to it,
    times their taps."""
    x, w, bias = call.array(0), call.array(1), call.maybe(2)
    if call.attrs.get("group", 1) != 1:
        raise Unsupported("ConvTranspose with groups, which onnx's reference evaluator gets wrong")
    if call.attrs.get("auto_pad", "NOTSET") != "NOTSET" or "output_shape" in call.attrs:
        raise Unsupported("ConvTranspose whose padding depends on the size of its result")
    seen, shape = _writers(call.attrs, x.shape[2:], w.shape[2:])
    (batch, channels), filters = x.shape[:2], w.shape[1]
    patches = np.moveaxis(padded(x, call.rational(0))[..., seen], -1, 2)  # [batch, channels, kernel elements, results]
    taps = np.swapaxes(w.reshape(channels, filters, -1), 0, 1).reshape(filters, -1)
    result = product(call, taps, patches.reshape(batch, -1, len(seen))).reshape(batch, filters, *shape)
    return result if bias is None else call.domain.add(result, bias.reshape(-1, *(1,) * len(shape)))


def _writers(
    attrs: Mapping[str, Any], sizes: tuple[int, ...], kernel: tuple[int, ...]
) -> tuple[Array, tuple[int, ...]]:
    """Return the element of the image that writes to each element of the result by each tap, as indices into the
    flattened spatial axes, [results, kernel elements], and the result's spatial shape."""
    rank = len(sizes)
    ones, zeros = (1,) * rank, (0,) * rank
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads, more = attrs.get("pads", zeros * 2), attrs.get("output_padding", zeros)
    shape = tuple(
        strides[i] * (sizes[i] - 1) + more[i] + (kernel[i] - 1) * dilations[i] + 1 - pads[i] - pads[rank + i]
        for i in range(rank)
    )
    found = np.full((math.prod(shape), math.prod(kernel)), OUTSIDE, dtype=np.int64)
    for result, place in enumerate(itertools.product(*map(range, shape))):
        for tap, offset in enumerate(itertools.product(*map(range, kernel))):
            at = [place[i] + pads[i] - offset[i] * dilations[i] for i in range(rank)]
            from_ = [divmod(position, stride) for position, stride in zip(at, strides, strict=True)]
            if all(not rest and 0 <= index < size for (index, rest), size in zip(from_, sizes, strict=True)):
                found[result, tap] = np.ravel_multi_index([index for index, _ in from_], sizes)
    return found, shape


def _resize(call: Call) -> Array:
    """Resize that repeats elements or interpolates them linearly, along one axis after the other, by exact
    coordinates."""
    attrs, x = call.attrs, call.array(0)
    if attrs.get("antialias", 0) or attrs.get("exclude_outside", 0):
        raise Unsupported("Resize that averages elements")
    if attrs.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unsupported("Resize that keeps the aspect ratio")
    axes = [axis % x.ndim for axis in attrs.get("axes", range(x.ndim))]
    for axis, (size, scale) in zip(axes, _sizes(call, [x.shape[axis] for axis in axes]), strict=True):
        places = [_coordinate(attrs, position, x.shape[axis], size, scale) for position in range(size)]
        if size != x.shape[axis] or any(place != position for position, place in enumerate(places)):
            x = _interpolated(call, x, axis, places)
    return x


def _sizes(call: Call, sizes: list[int]) -> list[tuple[int, Fraction]]:
    """Return the size and the scale of the result along each axis."""
    if call.has(3):
        return [(int(new), Fraction(int(new), old)) for new, old in zip(call.known(3), sizes, strict=True)]
    scales = call.inputs[2] if call.has(2) else None
    if not isinstance(scales, Tensor) or scales.values is None:
        raise Unsupported("Resize by scales that are not constant")
    exact = [Fraction(float(scale)) for scale in scales.values.reshape(-1)]
    return [(math.floor(old * scale), scale) for old, scale in zip(sizes, exact, strict=True)]


def _coordinate(attrs: Mapping[str, Any], position: int, old: int, new: int, scale: Fraction) -> Fraction:
    """Return where an element of the result lies in the image along an axis, by ONNX's documentation of Resize."""
    mode = attrs.get("coordinate_transformation_mode", "half_pixel")
    if mode == "asymmetric":
        return position / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and new > 1):
        return (position + Fraction(1, 2)) / scale - Fraction(1, 2)
    if mode == "pytorch_half_pixel":
        return Fraction(0)
    if mode == "align_corners":
        return Fraction(position * (old - 1), new - 1) if new > 1 else Fraction(0)
    raise Unsupported(f"Resize with coordinates by {mode}")


def _interpolated(call: Call, x: Array, axis: int, places: list[Fraction]) -> Array:
    mode, last = call.attrs.get("mode", "nearest"), x.shape[axis] - 1
    if mode == "nearest":
        rounded = [_rounded(call.attrs.get("nearest_mode", "round_prefer_floor"), place) for place in places]
        return np.take(x, [min(max(index, 0), last) for index in rounded], axis)
    if mode != "linear":
        raise Unsupported(f"Resize by {mode} interpolation")
    along = [1] * x.ndim
    along[axis] = len(places)
    terms = []
    for beyond in (0, 1):
        at = [min(max(math.floor(place) + beyond, 0), last) for place in places]
        shares = [place - math.floor(place) if beyond else 1 - (place - math.floor(place)) for place in places]
        weights = call.domain.array([call.domain.literal(share) for share in shares], tuple(along))
        terms.append(call.domain.mul(np.take(x, at, axis), weights))
    return np.asarray(call.domain.add(*terms))


def _rounded(mode: str, place: Fraction) -> int:
    if mode == "floor":
        return math.floor(place)
    if mode == "ceil":
        return math.ceil(place)
    half = Fraction(1, 2)
    return math.ceil(place - half) if mode == "round_prefer_floor" else math.floor(place + half)


LARGER_IMAGES: dict[str, Semantics] = {"ConvTranspose": _conv_transpose, "Resize": _resize}
