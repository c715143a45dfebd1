"""Values of a subgraph, each plain or blocked, while the subgraph is carried through ONNX Runtime's blocked layout.

A convolution waits until its result is used, so that an Add or an activation right after it goes into it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onnx import TensorProto

from graph_rewrite.ir.node import Node
from graph_rewrite.operators.nchwc import DOMAIN
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rules.layout.blocked_image import BlockedImage, enter, image_of, in_order, leave, of_image


@dataclass(slots=True)
class WaitingConv:
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
        """Tells whether a sum may still go into it."""
        return self.made is None and len(self.inputs) < 4 and "activation" not in self.attrs


class BlockedValues:
    """The values of a match as they lie in memory: `convolutions` counts the convolutions made in the layout."""

    def __init__(self, op: ReplacementBuilder, m: Match) -> None:
        self.op, self.m = op, m
        self.convolutions = 0
        self._plain: dict[int, Ref] = {}
        self._blocked: dict[int, BlockedImage] = {}
        self._waiting: dict[int, WaitingConv] = {}

    def plain(self, value: int) -> Ref:
        """Return a value in the plain layout."""
        if value not in self._plain and value in self._blocked:
            self._plain[value] = leave(self.op, self._blocked[value])
        return self._plain.get(value) or self.m.ref(value)

    def set_plain(self, value: int, ref: Ref) -> None:
        """Record what computes a value in the plain layout."""
        self._plain[value] = ref

    def set_blocked(self, value: int, image: BlockedImage) -> None:
        """Record what computes a value in the blocked layout."""
        self._blocked[value] = image

    def is_blocked(self, value: int | None) -> bool:
        return value in self._blocked

    def known(self, value: int | None) -> BlockedImage | None:
        """Return a value that is blocked already, else None."""
        return None if value is None else self._blocked.get(value)

    def blocked(self, value: int, like: BlockedImage | None = None) -> BlockedImage | None:
        """Return a value in the blocked layout; None where its channels do not fill blocks. One that comes out of the
        layout is taken as it was before."""
        if value not in self._blocked:
            ref = self.plain(value)
            if ref.dtype != TensorProto.FLOAT:
                return None
            channels = 1 if like is None or ref.rank != len(like.dims) else like.perm.index(like.channels)
            source = self._before_leaving(ref) if channels == 1 and ref.rank == 4 else None
            if source is not None:
                found: BlockedImage | None = of_image(source, ref.shape, 1)
            else:
                found = enter(self.op, ref, channels)
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

    def entered(self, value: int) -> Ref:
        """Return an image that a convolution reads; channels that do not fill blocks are padded with zeros."""
        found = self.blocked(value)
        if found is not None:
            return image_of(self.op, in_order(self.op, found))
        padded: Ref = self.op.nchwc.ReorderInput(self.plain(value))
        return padded

    def first(self, node: Node) -> BlockedImage | None:
        """Return a node's first input where it is blocked already."""
        return self.known(node.inputs[0])

    def constants(self, node: Node) -> tuple[Ref | None, ...]:
        """Return a node's inputs after the first, plain."""
        return tuple(None if value is None else self.plain(value) for value in node.inputs[1:])

    def wait(self, value: int, waiting: WaitingConv, shape: Sequence[int]) -> BlockedImage:
        """Let a convolution wait with the value that it computes."""
        self._waiting[value] = waiting
        order = tuple(range(len(shape)))
        return BlockedImage(lambda: waiting.make(self.op), tuple(shape), 1, order)

    def waiting(self, value: int | None) -> WaitingConv | None:
        """Return the convolution that waits with a value, where nothing else reads that."""
        waiting = None if value is None else self._waiting.get(value)
        if waiting is None or waiting.made is not None or value is None:
            return None
        ref = self.m.ref(value)
        return waiting if len(self.m.consumers(ref)) == 1 and not self.m.is_output(ref) else None
