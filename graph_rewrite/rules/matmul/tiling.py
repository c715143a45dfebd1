"""Tiling: a broadcast sum, an element-wise function, a product and a Softmax, done row block by row block.

The joint network of a transducer adds every frame to every label: what comes between is far larger than any cache,
while a block of it fits. Each operator then reads what the one before has just written.
"""

from __future__ import annotations

from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, split
from graph_rewrite.rules.helpers.constants import varies_along
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.operands import operands

TILES = 8
"""Number of blocks where the axis divides so; on a transducer's joint network of 4096 rows and 1024 columns in float32
a block of the product takes 2 MB."""


class _Tiled(Rule):
    family = "tiling"
    tiles: int

    def source(self, op: PatternBuilder, x: Any, y: Any, w: Const, b: Const) -> Any:
        rows = op.any_of(("Gelu", "Relu", "Sigmoid", "Tanh"))(op.Add(x, y, _label="sum"), _label="f")
        return op.Add(op.MatMul(rows, w, _label="product"), b)

    def check(self, m: Match, x: Ref, y: Ref, w: Ref, b: Ref) -> Refusal | None:
        rows = m.value("f")
        if w.rank != 2 or rows.rank < 3 or x.rank != rows.rank or y.rank != rows.rank:
            return Refusal("the sum is not a batch of matrices, or the weight is not one")
        if self._axis(x, y, rows) is None:
            return Refusal(f"no axis of the sum that one summand is broadcast along makes {self.tiles} equal blocks")
        return None if varies_along(b, 1, w.shape[1]) else Refusal("the bias varies along more than the columns")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, y: Ref, w: Ref, b: Ref) -> Any:
        x, y = operands(m, "sum")
        axis = self._axis(x, y, m.value("f"))
        assert axis is not None  # by `check`
        steps = (m.value("f").shape[axis] // self.tiles,) * self.tiles
        left, right = ((s,) * self.tiles if s.shape[axis] == 1 else split(op, s, steps, axis) for s in (x, y))
        parts = []
        for one, other in zip(left, right, strict=True):
            rows = apply_like(op, m, "f", op.Add(one, other))
            parts.append(op.Add(op.MatMul(rows, w), b))
        return concat(op, parts, axis)

    def _axis(self, x: Ref, y: Ref, rows: Ref) -> int | None:
        """Return the first axis before the last along which one summand is broadcast and the other makes equal
        blocks."""
        for axis in range(rows.rank - 1):
            length = rows.shape[axis]
            broadcast = 1 in (x.shape[axis], y.shape[axis])
            if broadcast and length > 1 and length % self.tiles == 0:
                return axis
        return None


class TileBroadcastLinear2(_Tiled):
    """Add(MatMul(f(Add(x, y)), w), b) = Concat(Add(MatMul(f(Add(x[i], y)), w), b) for both halves i) along an axis that
    y (or x) is broadcast along, for element-wise f; w a constant matrix and b constant per column"""

    tiles = 2


class TileBroadcastLinear8(_Tiled):
    """Add(MatMul(f(Add(x, y)), w), b) = Concat(Add(MatMul(f(Add(x[i], y)), w), b) for each of 8 blocks i) along an axis
    that y (or x) is broadcast along, for element-wise f; w a constant matrix and b constant per column"""

    tiles = TILES


class SoftmaxOfTiles(Rule):
    """f(Concat(x, y, ...)) = Concat(f(x), f(y), ...) for f in Softmax, LogSoftmax along another axis than that of the
    Concat: a block goes through it while it is in the cache"""

    family = "tiling"

    def source(self, op: PatternBuilder, xs: Values) -> Any:
        joined = op.Concat(xs, axis=op.attr("axis"))
        return op.any_of(("Softmax", "LogSoftmax"))(joined, axis=op.attr("over", -1), _label="f")

    def check(self, m: Match, xs: tuple[Ref, ...]) -> Refusal | None:
        if m.opset < 13:
            return Refusal("before opset 13 Softmax works over several axes")
        rank = m.root().rank
        same = m.attr("axis") % rank == m.attr("over") % rank
        return Refusal("the Softmax runs along the axis of the Concat") if same else None

    def target(self, op: ReplacementBuilder, m: Match, xs: tuple[Ref, ...]) -> Any:
        return concat(op, [apply_like(op, m, "f", x) for x in xs], m.attr("axis"))


RULES = (TileBroadcastLinear2, TileBroadcastLinear8, SoftmaxOfTiles)
