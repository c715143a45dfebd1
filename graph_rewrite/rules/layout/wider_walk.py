"""A walk through the blocked layout that goes further: channels that do not fill blocks, normalisations, means over all
positions, and products of an image with a factor per channel (squeeze-and-excitation).

A padded image has whole blocks of channels in memory, of which only the first are those of the value. Filters read the
others with zeros, so what they hold does not matter as long as it is finite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import gcd

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN, block_size
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import ints
from graph_rewrite.rules.helpers.geometry import normalisation
from graph_rewrite.rules.layout.blocked_conv import blocked_weights, conv_plan, pool_attrs
from graph_rewrite.rules.layout.blocked_image import BlockedImage, image_of, in_order, of_image
from graph_rewrite.rules.layout.blocked_values import WaitingConv
from graph_rewrite.rules.layout.blocked_walk import Walk
from graph_rewrite.rules.layout.carried_operators import CARRIED, UNARY_CARRIED

_LARGE_IMAGE = 1000
"""Positions from which a mean is taken in two steps: one sum of so many numbers in float32 rounds too much."""
_ON_PADDED = (UNARY_CARRIED - {"Exp", "Sqrt"}) | {"Add", "Sub", "Mul"}
"""Operators that keep a padded image finite, and need not know of the padding."""


@dataclass(slots=True)
class _Gated:
    """An image and the factors of its channels [C, 1, 1, 1], not multiplied yet."""

    image: BlockedImage
    factors: Ref


class WiderWalk(Walk):
    """Carries the operators of a subgraph, in topological order; images may be padded."""

    def __init__(self, op: ReplacementBuilder, m: Match) -> None:
        super().__init__(op, m)
        self.gated: dict[int, _Gated] = {}

    def carry(self, node: Node) -> None:
        """Compute the outputs of one node."""
        further = _FURTHER.get(node.op)
        found = None if further is None else further(self, node)
        if found is not None:
            self.set_blocked(node.outputs[0], found)
        elif node.op not in CARRIED or (
            node.op not in _ON_PADDED and any(self.is_padded(value) for value in node.inputs)
        ):
            self._leave(node)
        else:
            super().carry(node)

    def plain(self, value: int) -> Ref:
        """Return a value in the plain layout, without padding."""
        if value not in self._plain and self.is_padded(value):
            image = image_of(self.op, in_order(self.op, self._blocked[value]))
            self._plain[value] = self.op.nchwc.ReorderOutput(image, channels=self.m.ref(value).shape[1])
        return super().plain(value)

    def blocked(self, value: int, like: BlockedImage | None = None) -> BlockedImage | None:
        """Return a value in the blocked layout, padded where another one like it is."""
        if value not in self._blocked and like is not None:
            ref = self.plain(value)
            if ref.rank == 4 and like.is_in_order and like.dims == _padded(ref.shape) != ref.shape:
                self._blocked[value] = of_image(self.op.nchwc.ReorderInput(ref), like.dims, 1)
        return super().blocked(value, like)

    def is_padded(self, value: int | None) -> bool:
        """Tell whether a value is blocked with more channels than it has."""
        known = self.known(value)
        return known is not None and value is not None and known.shape != self.m.ref(value).shape

    def image(self, value: int | None) -> BlockedImage | None:
        """Return an image [N, C, H, W] that is blocked already, in order; None for any other value."""
        known = self.known(value)
        if known is None or value is None or self.m.ref(value).rank != 4:
            return None
        known = in_order(self.op, known)
        return known if known.channels == 1 else None


def _padded(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (shape[0], shape[1] + -shape[1] % block_size(), *shape[2:])


def _conv(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry a convolution; filters are padded to whole blocks."""
    value, *rest = node.inputs
    w, b = (*(None if v is None else values.plain(v) for v in rest), None)[:2]
    if value is None or w is None or w.constant is None or (b is not None and b.constant is None) or w.rank != 4:
        return None
    known, shape = values.image(value), values.m.ref(value).shape
    if known is None and values.is_blocked(value):
        return None
    group = node.attrs.get("group", 1)
    depthwise = 1 < group == shape[1] == w.shape[0]
    more = -w.shape[0] % block_size()
    if more and group > 1 and not depthwise:
        return None
    if more:
        w = values.op.Pad(w, values.op.ints(0, 0, 0, 0, more, 0, 0, 0))
        b = None if b is None else values.op.Pad(b, values.op.ints(0, more))
    read = shape if known is None else known.dims
    if depthwise:
        read, attrs = _padded(shape), {**node.attrs, "group": w.shape[0]}
        node = Node(node.id, node.op, node.inputs, node.outputs, attrs)
    elif group == 1 and w.shape[1] < read[1]:
        w = values.op.Pad(w, values.op.ints(0, 0, 0, 0, 0, read[1] - w.shape[1], 0, 0))
    plan = conv_plan(values.op, node, read, w)
    if plan is None:
        return None
    values.convolutions += 1
    gated = _filters_of_gated(values, value, plan.filters, plan.attrs)
    if gated is not None:
        source, filters = gated
    else:
        source, filters = values.plain(value) if plan.plain_input else values.entered(value), plan.filters
    return values.wait(node.outputs[0], WaitingConv((source, filters, b), plan.attrs), plan.shape)


def _filters_of_gated(
    values: WiderWalk, value: int, filters: Ref, attrs: Mapping[str, object]
) -> tuple[Ref, Ref] | None:
    """Return the image before its channels are multiplied, and pointwise filters times the factors; None where the
    filters are many beside the positions of the image, or something else reads the product."""
    gated = values.gated.get(value)
    if gated is None or attrs.get("group", 1) != 1 or filters.shape[2:] != (1, 1):
        return None
    count, channels = filters.shape[:2]
    if len(values.m.consumers(values.m.ref(value))) > 1 or values.m.is_output(values.m.ref(value)):
        return None
    if gated.image.dims[2] * gated.image.dims[3] < 2 * count:
        return None
    op = values.op
    # In memory [count / block, channels, block].
    rows = reshape(op, filters, (count // block_size(), channels, block_size()))
    product = op.Mul(rows, reshape(op, gated.factors, (channels, 1)))
    return image_of(op, gated.image), reshape(op, product, filters.shape)


def _gate(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry the product of an image with a factor per channel, both computed: a depthwise convolution of 1x1."""
    shapes = [() if value is None else values.m.ref(value).shape for value in node.inputs]
    of = gated_operand(shapes[0], shapes[1])
    if of is None:
        return None
    value, factor = node.inputs[of], node.inputs[1 - of]
    x = values.image(value)
    if x is None or factor is None or values.m.ref(factor).is_const:
        return None
    channels = x.dims[1]
    if not values.is_blocked(factor) and shapes[1 - of][1] % 4:
        return None
    factors = reshape(values.op, values.entered(factor), (channels, 1, 1, 1))
    values.gated[node.outputs[0]] = _Gated(x, factors)
    waiting = WaitingConv((image_of(values.op, x), factors), {"kernel_shape": (1, 1), "group": channels})
    return BlockedImage(lambda: waiting.make(values.op), x.dims, 1, (0, 1, 2, 3))


def gated_operand(left: tuple[int, ...], right: tuple[int, ...]) -> int | None:
    """Return which of two factors is an image [1, C, H, W] whose channels the other one [1, C, 1, 1] scales."""
    for number, (image, factor) in enumerate(((left, right), (right, left))):
        if len(image) == 4 and image[0] == 1 and factor == (1, image[1], 1, 1) and image != factor:
            return number
    return None


def _mean(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry the mean over all positions, in two steps for a large image."""
    if node.op == "ReduceMean" and not is_global_mean(node, values.m):
        return None
    x = values.image(node.inputs[0])
    if x is None:
        return None
    made, (height, width) = image_of(values.op, x), x.dims[2:]
    if height * width >= _LARGE_IMAGE:
        tile = _tile(height, width)
        if tile > 1:
            attrs = {"kernel_shape": (tile, tile), "strides": (tile, tile), "pads": (0, 0, 0, 0)}
            made = values.op.nchwc.AveragePool(made, **attrs, count_include_pad=0)
    return of_image(values.op.nchwc.GlobalAveragePool(made), (*x.dims[:2], 1, 1), 1)


def is_global_mean(node: Node, m: Match) -> bool:
    """Tell whether a ReduceMean of an image is a GlobalAveragePool."""
    axes = node.attrs.get("axes")
    if axes is None and len(node.inputs) > 1 and node.inputs[1] is not None:
        axes = ints(m.ref(node.inputs[1]))
    shape = () if node.inputs[0] is None else m.ref(node.inputs[0]).shape
    return len(shape) == 4 and node.attrs.get("keepdims", 1) == 1 and sorted(a % 4 for a in axes or ()) == [2, 3]


def _tile(height: int, width: int) -> int:
    """Return the side of the tiles, of those that cover the image, with which the fewest numbers are added in a row."""
    whole = gcd(height, width)
    sides = [side for side in range(1, whole + 1) if whole % side == 0]
    return min(sides, key=lambda side: side * side + height * width // (side * side))


def _pool(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry a pool of an image that may be padded."""
    x = values.image(node.inputs[0])
    if x is None or len(node.outputs) != 1:
        return None
    attrs = pool_attrs(node, values.m.ref(node.inputs[0] or 0))
    if attrs is None:
        return None
    made = values.op.nchwc.apply(node.op, DOMAIN, attrs, (image_of(values.op, x),), 1)[0]
    return of_image(made, made.shape, 1)


def _batch_norm(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry a normalisation: a depthwise convolution of 1x1, which waits for an activation."""
    x, constants = values.image(node.inputs[0]), values.constants(node)
    if x is None or len(node.outputs) > 1 or node.attrs.get("training_mode", 0) or values.is_padded(node.inputs[0]):
        return None
    scale, bias, mean, variance = constants
    if scale is None or bias is None or mean is None or variance is None or not all(c.is_const for c in constants if c):
        return None
    factor, shift = normalisation(values.op, scale, bias, mean, variance, node.attrs.get("epsilon", 1e-5))
    channels = x.dims[1]
    w = blocked_weights(values.op, reshape(values.op, factor, (channels, 1, 1, 1)), channels, channels)
    waiting = WaitingConv((image_of(values.op, x), w, shift), {"kernel_shape": (1, 1), "group": channels})
    return values.wait(node.outputs[0], waiting, x.dims)


def _hard_swish(values: WiderWalk, node: Node) -> BlockedImage | None:
    """Carry HardSwish into the convolution that waits with its operand."""
    x, waiting = values.first(node), values.waiting(node.inputs[0])
    if x is None or waiting is None or "activation" in waiting.attrs:
        return None
    return values.wait(node.outputs[0], replace(waiting, attrs={**waiting.attrs, "activation": "HardSwish"}), x.shape)


_FURTHER: Mapping[str, Callable[[WiderWalk, Node], BlockedImage | None]] = {
    **dict.fromkeys(POOLS, _pool),
    "BatchNormalization": _batch_norm,
    "Conv": _conv,
    "GlobalAveragePool": _mean,
    "HardSwish": _hard_swish,
    "Mul": _gate,
    "ReduceMean": _mean,
}
"""Functions that carry operators which `Walk` has not, or only for whole blocks; None leaves them to that."""
