"""The geometry of a convolution or pooling, with ONNX's defaults and `auto_pad` resolved, and constants derived
from filters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from graph_rewrite.ir.attributes import AttrValue
from graph_rewrite.ir.node import Node
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.element_types import numpy_dtype


@dataclass(frozen=True, slots=True)
class Geometry:
    """Geometry along the spatial axes; `pads` are explicit, all at the beginning first, then all at the end."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    group: int = 1

    @property
    def is_pointwise(self) -> bool:
        """Tells whether the kernel is 1x1 without padding, with any stride."""
        return all(k == 1 for k in self.kernel) and self.is_unpadded

    @property
    def is_dense_pointwise(self) -> bool:
        """Tells whether the operator is pointwise at every position over all channels: a matrix product."""
        return self.is_pointwise and self.is_unstrided and self.group == 1

    @property
    def is_unpadded(self) -> bool:
        return not any(self.pads)

    @property
    def is_unstrided(self) -> bool:
        return all(stride == 1 for stride in self.strides)

    @property
    def is_undilated(self) -> bool:
        return all(dilation == 1 for dilation in self.dilations)

    @property
    def is_plain(self) -> bool:
        """Tells whether the operator has no groups, strides or dilations."""
        return self.group == 1 and self.is_unstrided and self.is_undilated

    def attrs(self) -> dict[str, Any]:
        """Return the attributes of a Conv, all of them written out."""
        return {
            "kernel_shape": self.kernel, "strides": self.strides, "dilations": self.dilations, "pads": self.pads,
            "group": self.group,
        }  # fmt: skip


def conv_geometry(node: Node, x: Ref, w: Ref) -> Geometry:
    """Return the geometry of a Conv node of input `x` and filters `w`."""
    return geometry(node, x, w.shape[2:])


def geometry(node: Node, x: Ref, kernel: tuple[int, ...]) -> Geometry:
    """Return the geometry of a Conv or pooling node of input `x`."""
    ones, attrs = (1,) * len(kernel), node.attrs
    strides, dilations = attrs.get("strides", ones), attrs.get("dilations", ones)
    pads = attrs.get("pads", (0,) * (2 * len(kernel)))
    mode = attrs.get("auto_pad", "NOTSET")
    if mode == "VALID":
        pads = (0,) * (2 * len(kernel))
    elif mode in ("SAME_UPPER", "SAME_LOWER"):
        pads = _same_pads(x.shape[2:], kernel, strides, dilations, upper=mode == "SAME_UPPER")
    return Geometry(tuple(kernel), tuple(strides), tuple(dilations), tuple(pads), attrs.get("group", 1))


def with_pads(attrs: Mapping[str, AttrValue], pads: tuple[int, ...]) -> dict[str, AttrValue]:
    """Return the attributes of a Conv or pooling node with other padding, all of it explicit."""
    return {**{name: value for name, value in attrs.items() if name != "auto_pad"}, "pads": pads}


def _same_pads(
    sizes: tuple[int, ...], kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], upper: bool
) -> tuple[int, ...]:
    before, after = [], []
    for size, k, stride, dilation in zip(sizes, kernel, strides, dilations, strict=True):
        total = max((-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size, 0)
        small, large = total // 2, total - total // 2
        before.append(small if upper else large)
        after.append(large if upper else small)
    return (*before, *after)


def per_filter(op: ReplacementBuilder, scale: Ref, w: Ref) -> Ref:
    """Return a scale of one element, or one per filter, in a shape that multiplies filters [N, C, ...]."""
    return reshape(op, scale, (scale.type.size, *(1,) * (w.rank - 1)))


def times_input_channels(op: ReplacementBuilder, w: Ref, scale: Ref, group: int) -> Ref:
    """Return filters [N, C / group, ...] times a vector of one element per input channel, or of one element."""
    if scale.type.size == 1 or group == 1:
        scaled: Ref = op.Mul(w, reshape(op, scale, (1, scale.type.size, *(1,) * (w.rank - 2))))
        return scaled
    filters, channels = w.shape[0] // group, w.shape[1]
    grouped = reshape(op, w, (group, filters, *w.shape[1:]))
    factors = reshape(op, scale, (group, 1, channels, *(1,) * (w.rank - 2)))
    return reshape(op, op.Mul(grouped, factors), w.shape)


def response_to(op: ReplacementBuilder, w: Ref, constant: Ref, group: int) -> Ref:
    """Return the result of an unpadded convolution of an input that is constant per channel: a vector of one element
    per filter."""
    axes = op.ints(*range(1, w.rank))
    response: Ref = op.ReduceSum(times_input_channels(op, w, constant, group), axes, keepdims=0)
    return response


def joint_bias(op: ReplacementBuilder, first: Ref | None, second: Ref | None) -> Ref | None:
    """Return the sum of two biases that may be left out."""
    if first is None or second is None:
        return second if first is None else first
    total: Ref = op.Add(first, second)
    return total


def normalisation(
    op: ReplacementBuilder, scale: Ref, bias: Ref, mean: Ref, variance: Ref, epsilon: float
) -> tuple[Ref, Ref]:
    """Return BatchNormalization at inference as x * factor + shift; both are vectors of one element per channel.

    As an attribute, epsilon is a number of float32, whatever the type of the variance.
    """
    deviation = op.Sqrt(op.Add(variance, op.constant(np.array(np.float32(epsilon), dtype=numpy_dtype(variance)))))
    factor = op.Div(scale, deviation)
    return factor, op.Sub(bias, op.Mul(mean, factor))
