"""Fast convolutions inside ONNX Runtime's blocked layout: for convolutions that are explicit operators already.

The steps are those of `convolution.winograd`. Sums go into the convolutions before them, as ONNX Runtime does it by
itself for plain operators, and rows are put in order in the layout: a Concat of whole rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from graph_rewrite.operators.nchwc import block_size, plain_filters
from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, MaybeConst, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal
from graph_rewrite.rules.convolution.winograd import WinogradRows4
from graph_rewrite.rules.convolution.winograd_steps import data_tiles, filter_tiles, result_images
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.geometry import conv_geometry
from graph_rewrite.rules.helpers.slices import take
from graph_rewrite.rules.layout.blocked_conv import blocked_weights

FEWEST_ROWS = 28
"""Rows of an image from which it pays. Measured on a Zen 5 with 128 channels and 32 filters, with one convolution
before and one behind it: 1.12 at 56 rows, 1.16 at 28, 0.91 at 14."""


@dataclass(frozen=True, slots=True, eq=False)
class _Step:
    """A Conv or an Add that is not made yet, since a sum goes into a convolution that nothing else reads."""

    op: str
    inputs: tuple[Any, ...]
    attrs: Mapping[str, Any]
    channels: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return batch, which nothing asks for, and channels."""
        return 0, self.channels


class _Steps:
    """Takes convolutions and sums of blocked images as a builder does, and makes them when all are known."""

    def __init__(self, op: ReplacementBuilder) -> None:
        self._op = op
        self._made: dict[_Step, Ref] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._op, name)

    def Conv(self, x: Any, w: Ref, b: Ref | None = None, **attrs: Any) -> _Step:
        return _Step("Conv", (x, w, b), attrs, w.shape[0])

    def Add(self, x: Any, y: Any) -> _Step | Ref:
        if isinstance(x, _Step) and isinstance(y, _Step):
            return _Step("Add", (x, y), {}, x.channels)
        constants: Ref = self._op.Add(x, y)
        return constants

    def results(self, steps: list[_Step]) -> list[Ref]:
        """Make steps and what they read."""
        readers = Counter(value for step in _all(steps) for value in step.inputs if isinstance(value, _Step))
        return [self._make(step, readers) for step in steps]

    def _make(self, step: Any, readers: Counter[_Step]) -> Ref:
        if not isinstance(step, _Step):
            ref: Ref = step
            return ref
        if step not in self._made:
            if step.op == "Conv":
                self._made[step] = self._conv(step, readers, None)
            else:
                self._made[step] = self._sum(step, readers)
        return self._made[step]

    def _sum(self, step: _Step, readers: Counter[_Step]) -> Ref:
        for own, other in (step.inputs, step.inputs[::-1]):
            if own.op == "Conv" and readers[own] == 1:
                return self._conv(own, readers, self._make(other, readers))
        total: Ref = self._op.Add(*(self._make(value, readers) for value in step.inputs))
        return total

    def _conv(self, step: _Step, readers: Counter[_Step], total: Ref | None) -> Ref:
        x, w, b = step.inputs
        x = self._make(x, readers)
        filters = blocked_weights(self._op, w, step.attrs.get("group", 1), x.shape[1])
        result: Ref = self._op.nchwc.Conv(x, filters, b, total, kernel_shape=w.shape[2:], **step.attrs)
        return result


def _all(steps: list[_Step]) -> Iterator[_Step]:
    """Yield steps and all that they read, each once."""
    seen: set[_Step] = set()
    stack = list(steps)
    while stack:
        step = stack.pop()
        if step not in seen:
            seen.add(step)
            yield step
            stack.extend(value for value in step.inputs if isinstance(value, _Step))


class BlockedConvByRows4(WinogradRows4):
    """Conv'(x, w, b) = rows of A (B^T x * G w), F(4, r) along the height, all in the blocked layout, w constant"""

    family = "blocked_layout"
    by_structure = False  # filters also follow the block size

    def channels_of_a_block(self) -> int:
        return block_size()

    def source(self, op: PatternBuilder, x: Any, w: Const, b: MaybeConst) -> Any:
        return op.nchwc.Conv(x, w, b, _label="conv")

    def check(self, m: Match, x: Ref, w: Ref, b: Ref | None) -> Refusal | None:
        if m.attrs("conv").get("activation"):
            return Refusal("the convolution has an activation")
        if m.root().rank == 4 and m.root().shape[2] < FEWEST_ROWS:
            return Refusal(f"the image has fewer than {FEWEST_ROWS} rows")
        return super().check(m, x, w, b)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref | None) -> Any:
        own, (batch, filters, height, width) = conv_geometry(m.node("conv"), x, w), m.root().shape
        rows, _ = self.transforms(own.kernel)
        assert rows is not None
        steps: Any = _Steps(op)

        def apply(name: str, attrs: Mapping[str, Any], inputs: Sequence[Any]) -> Ref:
            refs = tuple(v if isinstance(v, Ref) else op.constant(v) for v in inputs)
            return op.apply(name, "", dict(attrs), refs, 1)[0]

        plain = plain_filters(w, m.attrs("conv"), x.shape[1], apply)
        tiles = data_tiles(steps, x, rows, 2, own.pads[0], height)
        pads = (0, own.pads[1], 0, own.pads[3])
        products = [
            # The bias goes into the product at the point 1, which every result contains once.
            steps.Conv(tile, u, b if i == 1 else None, pads=pads)
            for i, (tile, (u,)) in enumerate(zip(tiles, filter_tiles(op, plain, rows, None), strict=True))
        ]
        images = steps.results(result_images(steps, products, rows, relu=False))
        lines = (batch * filters // block_size(), -(-height // rows.outputs), width * block_size())
        # [blocks, n, m * row] holds what [blocks, n * m, row] does: rows side by side are rows in order.
        image = op.Concat(*(reshape(op, line, lines) for line in images), axis=2)
        image = reshape(op, image, (lines[0], rows.outputs * lines[1], lines[2]))
        return reshape(op, take(op, image, {1: range(height)}), m.root().shape)


RULES = (BlockedConvByRows4,)
