"""Tiling: a broadcast sum, an element-wise function, a product and a Softmax, or two linear layers with a function
between them, done row block by row block.

The joint network of a transducer adds every frame to every label, and a network of images widens every position: what
comes between is far larger than a core's own cache, while a block of it fits. Each operator then reads what the one
before has just written.
"""

from __future__ import annotations

import math
from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Values
from graph_rewrite.rewriting.replacement import Ref, Replacement, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import concat, reshape, split
from graph_rewrite.rules.helpers.constants import as_vector, varies_along
from graph_rewrite.rules.helpers.elementwise import UNARY, apply_like
from graph_rewrite.rules.helpers.operands import operands

TILES = 8
"""Number of blocks where the axis divides so; on a transducer's joint network of 4096 rows and 1024 columns in float32
a block of the product takes 2 MB."""

MOST_TILES = 32
"""Blocks of a feed-forward network, at most: each costs four operators."""
SMALL_TILE = 100.0
"""Bytes of a block in proofs."""


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


class TileFeedForward(Rule):
    """Add(MatMul(f(Add(MatMul(x, v), a)), w), b) = Concat(the same of x[i] for blocks i of rows) for element-wise f;
    all but x constant

    On a Zen 3, layers of 96 and 384 channels over 3136 positions take 0.88 of their time, those of 192 and 768 over 784
    positions 0.96.
    """

    family = "tiling"
    tile_bytes: float = 400e3
    """Bytes of a block between the layers in float32: what a core's own cache holds beside the rest."""
    weight_share: float = 0.5
    """Size of a block relative to the weights from which it is not made smaller: each block reads them again."""
    count: int | None = None
    """Number of blocks; by default the sizes decide."""

    @property
    def at_any_size(self) -> TileFeedForward:
        small = TileFeedForward()
        small.tile_bytes, small.weight_share = SMALL_TILE, 0.0
        return small

    def as_in(self, replacement: Replacement) -> TileFeedForward:
        same = TileFeedForward()
        same.count = next(len(node.inputs) for node in replacement.nodes if node.op == "Concat")
        return same

    def source(self, op: PatternBuilder, x: Any, v: Const, a: Const, w: Const, b: Const) -> Any:
        wide = op.any_of(UNARY)(op.Add(op.MatMul(x, v), a, _label="wide"), _label="f")
        return op.Add(op.MatMul(wide, w), b)

    def check(self, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Refusal | None:
        if v.rank != 2 or w.rank != 2 or x.rank < 2:
            return Refusal("a weight is not a matrix, or x is none")
        if not (varies_along(a, 1, v.shape[1]) and varies_along(b, 1, w.shape[1])):
            return Refusal("a bias varies along more than the columns")
        if m.value("f").dtype != v.dtype:
            return Refusal("the function changes the type")
        wanted = self._wanted(m, v, w)
        if wanted <= 1:
            return Refusal("what lies between the layers stays in the cache, or is small beside their weights")
        if self._tiles(x, wanted) is None:
            return Refusal(f"the rows make no equal blocks, {wanted} or more and no more than {MOST_TILES}")
        return None

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Any:
        rows, tiles = math.prod(x.shape[:-1]), self._tiles(x, self._wanted(m, v, w))
        assert tiles is not None  # by `check`
        a, b = as_vector(op, a, v.shape[1]), as_vector(op, b, w.shape[1])
        parts = []
        # As matrices, which ONNX Runtime multiplies and sums in one operator without a Reshape for each.
        for tile in split(op, reshape(op, x, (rows, x.shape[-1])), (rows // tiles,) * tiles, 0):
            wide = apply_like(op, m, "f", op.Add(op.MatMul(tile, v), a))
            parts.append(op.Add(op.MatMul(wide, w), b))
        return reshape(op, concat(op, parts, 0), m.root().shape)

    def _wanted(self, m: Match, v: Ref, w: Ref) -> int:
        """Return the fewest blocks that are small enough."""
        if self.count is not None:
            return self.count
        wide, weights = 4 * m.value("wide").type.size, 4 * (v.type.size + w.type.size)
        return math.ceil(wide / max(self.tile_bytes, self.weight_share * weights))

    def _tiles(self, x: Ref, wanted: int) -> int | None:
        """Return the fewest equal blocks of rows, from a number on."""
        rows = math.prod(x.shape[:-1])
        return next((tiles for tiles in range(wanted, MOST_TILES + 1) if rows % tiles == 0), None)


RULES = (TileBroadcastLinear2, TileBroadcastLinear8, TileFeedForward, SoftmaxOfTiles)
