"""A part of a graph, carried through ONNX Runtime's blocked layout operator by operator.

The walk gives every value of the part either plain or blocked. A convolution enters the layout; what only moves or maps
elements stays where its operands are; for everything else the value leaves it again. A convolution waits until its
result is used, so that an Add or an activation right after it goes into it.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN
from graph_rewrite.operators.operator_sets import POOLS
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.helpers.axes import ints, permutation, reshape, slice_ranges
from graph_rewrite.rules.layout import blocked_image as image
from graph_rewrite.rules.layout.blocked_conv import conv_plan, fused_activation, pool_attrs, scaled
from graph_rewrite.rules.layout.blocked_image import BlockedImage

MOVES = frozenset({
    "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Split", "Concat", "Pad", "Gather",
})  # fmt: skip
BINARY_CARRIED = frozenset({"Add", "Sub", "Mul", "Div", "Max", "Min", "Pow"})
UNARY_CARRIED = frozenset({
    "Abs", "Ceil", "Celu", "Clip", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "LeakyRelu",
    "Mish", "Neg", "Relu", "Selu", "Sigmoid", "Softplus", "Softsign", "Sqrt", "Swish", "Tanh", "ThresholdedRelu",
})  # fmt: skip
CARRIED = frozenset({"Conv"}) | POOLS | MOVES | BINARY_CARRIED | UNARY_CARRIED
"""Operators that the walk goes through."""


def leaves_layout(node: Node) -> bool:
    """Whether ONNX Runtime's own pass leaves the layout for a node, or the node does so explicitly. Where nothing does,
    explicit operators gain nothing."""
    if node.domain == DOMAIN:
        return True
    return node.op in MOVES and not node.domain and not (node.op == "Concat" and node.attrs.get("axis") == 1)


@dataclass(slots=True)
class _Waiting:
    """A convolution that is not made yet."""

    inputs: tuple[Ref | None, ...]
    attrs: Mapping[str, Any]
    made: Ref | None = None

    def make(self, op: ReplacementBuilder) -> Ref:
        if self.made is None:
            self.made = op.nchwc.Conv(*self.inputs, **self.attrs)
        return self.made

    @property
    def takes_sum(self) -> bool:
        return self.made is None and len(self.inputs) < 4 and "activation" not in self.attrs


class Walk:
    """Carries the operators of a part, in topological order. `convolutions` counts those in the layout."""

    def __init__(self, op: ReplacementBuilder, m: Match) -> None:
        self.op, self.m = op, m
        self.convolutions = 0
        self._plain: dict[int, Ref] = {}
        self._blocked: dict[int, BlockedImage] = {}
        self._waiting: dict[int, _Waiting] = {}

    def carry(self, node: Node) -> None:
        """Compute the outputs of one node."""
        handler = getattr(self, f"_{node.op.lower()}", None) or (
            self._pool if node.op in POOLS else self._binary if node.op in BINARY_CARRIED else self._unary
        )
        found = handler(node)
        if found is None:
            self._leave(node)
            return
        for value, result in zip(node.outputs, found if isinstance(found, list) else [found], strict=True):
            self._blocked[value] = result

    def plain(self, value: int) -> Ref:
        """A value in the plain layout."""
        if value not in self._plain and value in self._blocked:
            self._plain[value] = image.leave(self.op, self._blocked[value])
        return self._plain.get(value) or self.m.ref(value)

    def is_blocked(self, value: int | None) -> bool:
        return value in self._blocked

    def blocked(self, value: int, like: BlockedImage | None = None) -> BlockedImage | None:
        """A value in the blocked layout; None where its channels do not fill blocks. One that comes out of the layout
        is taken as it was before."""
        if value not in self._blocked:
            ref = self.plain(value)
            if ref.dtype != TensorProto.FLOAT:
                return None
            channels = 1 if like is None or ref.rank != len(like.dims) else like.perm.index(like.channels)
            source = self._before_leaving(ref) if channels == 1 and ref.rank == 4 else None
            if source is not None:
                found: BlockedImage | None = image.of_image(source, ref.shape, 1)
            else:
                found = image.enter(self.op, ref, channels)
            if found is None:
                return None
            self._blocked[value] = found
        return self._blocked[value]

    def _before_leaving(self, ref: Ref) -> Ref | None:
        node = self.m.producer(ref)
        if node is None or node.op != "ReorderOutput" or node.domain != DOMAIN or node.inputs[0] is None:
            return None
        source = self.m.ref(node.inputs[0])
        return source if source.shape == ref.shape else None

    def _leave(self, node: Node) -> None:
        """Apply the node as it is, to plain values."""
        inputs = tuple(None if value is None else self.plain(value) for value in node.inputs)
        results = self.op.apply(node.op, node.domain, dict(node.attrs), inputs, len(node.outputs))
        self._plain.update(zip(node.outputs, results, strict=True))

    def _first(self, node: Node) -> BlockedImage | None:
        """The first input, where it is blocked already."""
        value = node.inputs[0]
        return None if value is None else self._blocked.get(value)

    def _constants(self, node: Node) -> tuple[Ref | None, ...]:
        return tuple(None if value is None else self.plain(value) for value in node.inputs[1:])

    # Convolutions, and what goes into them.

    def _conv(self, node: Node) -> BlockedImage | None:
        value, *rest = node.inputs
        w, b = (*(None if v is None else self.plain(v) for v in rest), None)[:2]
        if value is None or w is None or w.constant is None or (b is not None and b.constant is None):
            return None
        known = self._blocked.get(value)
        if known is not None and image.in_order(self.op, known).channels != 1:
            return None
        plan = conv_plan(self.op, node, self.m.ref(value).shape, w)
        if plan is None:
            return None
        source = self.plain(value) if plan.plain_input else self._entered(value)
        self.convolutions += 1
        return self._wait(node.outputs[0], _Waiting((source, plan.filters, b), plan.attrs), plan.shape)

    def _entered(self, value: int) -> Ref:
        """An image that a convolution reads; channels that don't fill blocks are padded with zeros."""
        found = self.blocked(value)
        if found is not None:
            return image.image_of(self.op, image.in_order(self.op, found))
        padded: Ref = self.op.nchwc.ReorderInput(self.plain(value))
        return padded

    def _wait(self, value: int, waiting: _Waiting, shape: Sequence[int]) -> BlockedImage:
        self._waiting[value] = waiting
        order = tuple(range(len(shape)))
        return BlockedImage(lambda: waiting.make(self.op), tuple(shape), 1, order)

    def _open(self, value: int | None) -> _Waiting | None:
        """The convolution that waits with a value, where nothing else reads that."""
        waiting = None if value is None else self._waiting.get(value)
        if waiting is None or waiting.made is not None or value is None:
            return None
        ref = self.m.ref(value)
        return waiting if len(self.m.consumers(ref)) == 1 and not self.m.is_output(ref) else None

    # Element by element.

    def _unary(self, node: Node) -> BlockedImage | None:
        x, waiting = self._first(node), self._open(node.inputs[0])
        if x is None or any(ref is not None and ref.type.size != 1 for ref in self._constants(node)):
            return None
        fused = fused_activation(node, self._constants(node))
        if waiting is not None and fused is not None and "activation" not in waiting.attrs:
            return self._wait(node.outputs[0], replace(waiting, attrs={**waiting.attrs, **fused}), x.shape)
        made = self.op.apply(node.op, "", dict(node.attrs), (x.make(), *self._constants(node)), 1)[0]
        return replace(x, make=lambda: made)

    def _binary(self, node: Node) -> BlockedImage | None:
        left, right = node.inputs
        if left is None or right is None or not (self.is_blocked(left) or self.is_blocked(right)):
            return None
        result = self.m.ref(node.outputs[0])
        shapes = [self.m.ref(value).shape for value in (left, right)]
        if shapes[0] != shapes[1]:
            return self._with_constant(node, left, right, result.shape)
        main = self._blocked.get(left) or self._blocked[right]
        pair = [self.blocked(value, main) for value in (left, right)]
        if pair[0] is None or pair[1] is None:
            return None
        a, b = pair[0], pair[1]
        if node.op == "Add":
            fused = self._sum(node, (left, right), (a, b))
            if fused is not None:
                return fused
        if a.layout != b.layout:
            a, b = image.in_order(self.op, a), image.in_order(self.op, b)
        if a.layout != b.layout:
            return None
        first = a.make()
        second = image.image_of(self.op, b) if b.make().shape != first.shape else b.make()
        first = image.image_of(self.op, a) if first.shape != second.shape else first
        made = self.op.apply(node.op, "", dict(node.attrs), (first, second), 1)[0]
        return replace(a, make=lambda: made)

    def _sum(self, node: Node, values: Sequence[int], pair: Sequence[BlockedImage]) -> BlockedImage | None:
        """The sum as an input of the convolution that gives one of the summands."""
        for own, other in ((0, 1), (1, 0)):
            waiting = self._open(values[own])
            if waiting is None or not waiting.takes_sum or values[0] == values[1]:
                continue
            total = image.in_order(self.op, pair[other])
            if total.layout != pair[own].layout:
                continue
            inputs = (*waiting.inputs, image.image_of(self.op, total))
            return self._wait(node.outputs[0], replace(waiting, inputs=inputs), pair[own].shape)
        return None

    def _with_constant(self, node: Node, left: int, right: int, shape: tuple[int, ...]) -> BlockedImage | None:
        """With a number, or with one per channel."""
        value, other = (left, right) if self.is_blocked(left) else (right, left)
        x, c = self._blocked[value], self.plain(other)
        if c.constant is None or x.shape != shape:
            return None
        if c.type.size == 1:
            number = reshape(self.op, c, ())
            operands = (x.make(), number) if value == left else (number, x.make())
            made = self.op.apply(node.op, "", dict(node.attrs), operands, 1)[0]
            return replace(x, make=lambda: made)
        made_image = scaled(self.op, node.op, x, c, value == left)
        return None if made_image is None else replace(x, make=lambda: made_image)

    # Pooling.

    def _pool(self, node: Node) -> BlockedImage | None:
        x = self._first(node)
        if x is None or len(node.outputs) != 1:
            return None
        x = image.in_order(self.op, x)
        attrs = pool_attrs(node, self.m.ref(node.inputs[0] or 0))
        if len(x.dims) != 4 or x.channels != 1 or attrs is None:
            return None
        made = self.op.nchwc.apply(node.op, DOMAIN, attrs, (image.image_of(self.op, x),), 1)[0]
        return image.of_image(made, self.m.ref(node.outputs[0]).shape, 1)

    # Moves.

    def _reshape(self, node: Node) -> BlockedImage | None:
        x = self._first(node)
        return None if x is None else image.reshaped(self.op, x, self.m.ref(node.outputs[0]).shape)

    _flatten = _squeeze = _unsqueeze = _reshape

    def _transpose(self, node: Node) -> BlockedImage | None:
        x = self._first(node)
        return None if x is None else image.transposed(x, permutation(node.attrs.get("perm"), len(x.dims)))

    def _slice(self, node: Node) -> BlockedImage | None:
        x = self._first(node)
        if x is None:
            return None
        starts, ends, axes, steps = (*self._constants(node), None, None)[:4]
        if starts is None or ends is None:
            return None
        ranges = slice_ranges(self.m.ref(node.inputs[0] or 0), starts, ends, axes, steps)
        if not isinstance(ranges, Mapping):
            return None
        found: BlockedImage | None = x
        for axis, kept in ranges.items():
            if found is not None and kept != range(x.shape[axis]):
                found = image.cut(self.op, found, axis, kept)
        return found

    def _gather(self, node: Node) -> BlockedImage | None:
        x, (indices,) = self._first(node), self._constants(node)
        places, axis = ints(indices), node.attrs.get("axis", 0)
        if x is None or indices is None or indices.rank != 1 or not places:
            return None
        steps = {b - a for a, b in itertools.pairwise(places)}
        if len(steps) > 1 or min(places) < 0 or steps & {0}:
            return None
        step = steps.pop() if steps else 1
        return image.cut(self.op, x, axis % len(x.dims), range(places[0], places[-1] + step, step))

    def _split(self, node: Node) -> list[BlockedImage] | None:
        x = self._first(node)
        if x is None:
            return None
        axis = node.attrs.get("axis", 0) % len(x.dims)
        return image.split(self.op, x, axis, [self.m.ref(value).shape[axis] for value in node.outputs])

    def _concat(self, node: Node) -> BlockedImage | None:
        main = next((self._blocked[value] for value in node.inputs if value in self._blocked), None)
        if main is None:
            return None
        parts = [self.blocked(value, main) for value in node.inputs if value is not None]
        found = [part for part in parts if part is not None]
        axis = node.attrs["axis"] % len(main.dims)
        return image.join(self.op, found, axis) if len(found) == len(parts) else None

    def _pad(self, node: Node) -> BlockedImage | None:
        x = self._first(node)
        if x is None or node.attrs.get("mode", "constant") != "constant":
            return None
        amounts, value, axes = (*self._constants(node), None, None)[:3]
        counts, named = ints(amounts), ints(axes) if axes is not None else tuple(range(len(x.dims)))
        if counts is None or named is None:
            return None
        found: BlockedImage | None = x
        for i, axis in enumerate(named):
            before, after = counts[i], counts[len(named) + i]
            if found is not None and (before or after):
                found = image.padded(self.op, found, axis % len(x.dims), before, after, value)
        return found
