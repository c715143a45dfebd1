"""Convolutions, pools and factors per channel as operators of the blocked layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto

from graph_rewrite.ir.attributes import float32
from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import ALIGNMENT, block_size, blocked_filters
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.geometry import geometry
from graph_rewrite.rules.layout.blocked_image import BlockedImage, image_of


@dataclass(frozen=True, slots=True)
class ConvPlan:
    """The form of a convolution in the layout: blocked filters, attributes, the result's shape, and whether it reads
    the plain image."""

    filters: Ref
    attrs: Mapping[str, Any]
    shape: tuple[int, ...]
    plain_input: bool


def conv_plan(op: ReplacementBuilder, node: Node, x: tuple[int, ...], w: Ref) -> ConvPlan | None:
    """Return the form of a Conv of an image of shape x and constant filters; None where the layout has no such
    convolution."""
    if len(x) != 4 or w.rank != 4 or w.dtype != TensorProto.FLOAT or unsuited(node, x, w):
        return None
    own = geometry(node, Ref(type(w.type)(w.dtype, x)), w.shape[2:])
    block, group = block_size(), own.group
    more = -x[1] % block if group == 1 and x[1] > block else 0
    if more:
        w = op.Pad(w, op.ints(0, 0, 0, 0, 0, more, 0, 0))
    sizes = [
        (size + own.pads[i] + own.pads[2 + i] - (own.kernel[i] - 1) * own.dilations[i] - 1) // own.strides[i] + 1
        for i, size in enumerate(x[2:])
    ]
    return ConvPlan(blocked_weights(op, w, group, x[1]), own.attrs(), (x[0], w.shape[0], *sizes), x[1] < block)


def unsuited(node: Node, x: tuple[int, ...], w: Ref) -> str:
    """Return the reason why the layout has no such convolution; empty where it has."""
    block, group = block_size(), node.attrs.get("group", 1)
    if not block:
        return "ONNX Runtime has no blocked layout on this CPU"
    if w.shape[0] % block:
        return f"{w.shape[0]} filters do not fill blocks of {block}"
    if group == 1:
        fits = x[1] < block or x[1] % ALIGNMENT == 0
        return "" if fits else f"{x[1]} channels are no multiple of {ALIGNMENT}"
    if group == w.shape[0] == x[1]:
        return ""
    whole = w.shape[1] % block == 0 and w.shape[0] // group % block == 0
    return "" if whole else f"the groups do not fill blocks of {block}"


def blocked_weights(op: ReplacementBuilder, w: Ref, group: int, channels: int) -> Ref:
    """Return filters in the order of the layout, as a constant expression: nothing is moved during search."""

    def apply(name: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Ref:
        refs = tuple(x if isinstance(x, Ref) else op.constant(x) for x in inputs)
        return op.apply(name, "", dict(attrs), refs, 1)[0]

    found: Ref = blocked_filters(w, group, channels, apply)
    return found


def pool_attrs(node: Node, x: Ref) -> dict[str, Any] | None:
    """Return the attributes of a pool in the layout, with padding written out; None where the layout has no such
    pool."""
    if node.op.startswith("Global"):
        return {}
    own = geometry(node, x, tuple(node.attrs["kernel_shape"]))
    if len(own.kernel) != 2 or node.attrs.get("ceil_mode", 0) or min(own.pads) < 0 or not own.is_undilated:
        return None
    attrs = {"kernel_shape": own.kernel, "strides": own.strides, "pads": own.pads}
    return {**attrs, "count_include_pad": node.attrs.get("count_include_pad", 0)} if node.op == "AveragePool" else attrs


def fused_activation(node: Node, rest: Sequence[Ref | None]) -> dict[str, Any] | None:
    """Return an activation as attributes of the convolution before it; None for one that it does not take."""
    if node.op in ("Relu", "Sigmoid", "Tanh"):
        return {"activation": node.op}
    if node.op == "LeakyRelu":
        return {"activation": node.op, "activation_params": (node.attrs.get("alpha", float32(0.01)),)}
    if node.op == "HardSigmoid":
        params = (node.attrs.get("alpha", float32(0.2)), node.attrs.get("beta", float32(0.5)))
        return {"activation": node.op, "activation_params": params}
    return None


def scaled(op: ReplacementBuilder, name: str, x: BlockedImage, c: Ref, x_first: bool) -> Ref | None:
    """Return a blocked value plus, minus or times a constant of one element per channel: a depthwise convolution of
    1x1."""
    channels = x.dims[x.channels]
    axis = x.perm.index(x.channels)
    lengths = (1,) * (len(x.perm) - c.rank) + c.shape
    if name not in ("Add", "Sub", "Mul") or len(lengths) != len(x.perm) or (name == "Sub" and not x_first):
        return None
    if any(n != (channels if i == axis else 1) for i, n in enumerate(lengths)):
        return None
    vector = reshape(op, c, (channels,))
    factor, bias = (vector, None) if name == "Mul" else (op.constant(np.ones(channels, np.float32)), vector)
    bias = op.Neg(bias) if name == "Sub" and bias is not None else bias
    w = blocked_weights(op, reshape(op, factor, (channels, 1, 1, 1)), channels, channels)
    result: Ref = op.nchwc.Conv(image_of(op, x), w, bias, kernel_shape=(1, 1), group=channels)
    return result
