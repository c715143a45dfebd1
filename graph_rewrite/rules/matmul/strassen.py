"""Linear layers with seven products of quarters in place of eight: Strassen's algorithm (Numerische Mathematik 13,
1969, pp. 354-356) in the form with the fewest sums (Winograd's; Knuth, The Art of Computer Programming, section 4.6.4).

Rows and columns of x are halved, and so are those of the constant weight w. Sums of quarters of w are constants:

    s1 = x21 + x22, s2 = s1 - x11, s3 = x11 - x21, s4 = x12 - s2    t1 = w12 - w11, t2 = w22 - t1
    u1 = x11 w11 + s2 t2, u2 = u1 + s3 (w22 - w12), p5 = s1 t1
    y11 = x11 w11 + x12 w21, y12 = u1 + p5 + s4 w22, y21 = u2 + x22 (w21 - t2), y22 = u2 + p5

The products are pointwise convolutions over channels, to which ONNX Runtime fuses five of the sums; an element-wise
function works on quarters as well, so that two layers with one between cut and join once. With an odd number of rows
the halves share the middle one. A single layer has to be cut and joined for itself, which takes most of what it saves
unless there are many rows (benchmarks/layers-zen4.md has measurements).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, TypeAlias

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.convolution.winograd_steps import times
from graph_rewrite.rules.helpers.axes import concat, reshape, split
from graph_rewrite.rules.helpers.blocks import BLOCK
from graph_rewrite.rules.helpers.constants import as_vector, parts, varies_along
from graph_rewrite.rules.helpers.elementwise import apply_like
from graph_rewrite.rules.helpers.operands import has_bias
from graph_rewrite.rules.helpers.slices import take
from graph_rewrite.rules.matmul.pointwise import as_filters, from_channels, to_channels

Blocks: TypeAlias = "Ref | tuple[Blocks, ...]"
"""A matrix, or its four quarters in the order 11, 12, 21, 22."""


class _Strassen(Rule):
    family = "strassen"
    levels: ClassVar[int] = 1
    least_rows: ClassVar[int]
    """Fewest rows: with fewer, sums, cuts and joins took what the products saved in `benchmarks.families`."""
    error_growth: ClassVar[float] = 2e-6
    """Largest error measured in float32 for 512 to 1024 channels, relative to the largest magnitude of the output; the
    direct product has 5e-7."""

    def refuse(self, x: Ref, *layers: tuple[Ref, Ref | None]) -> Refusal | None:
        """Refuse linear layers (weight, bias) of x, or of what is computed from it, that cannot be computed by
        quarters."""
        if x.dtype != TensorProto.FLOAT or x.rank < 2:
            return Refusal("not rows of float32")
        if math.prod(x.shape[:-1]) < self.least_rows:
            return Refusal(f"with fewer than {self.least_rows} rows sums take longer than the product that they save")
        for w, b in layers:
            if w.rank != 2:
                return Refusal("the weight is not a matrix")
            if any(size % (BLOCK << self.levels) for size in w.shape):
                return Refusal(f"parts of the weight do not fill blocks of {BLOCK} channels")
            if b is not None and not varies_along(b, 1, w.shape[1]):
                return Refusal("the bias varies along more than the columns")
        return None

    def first(self, op: ReplacementBuilder, x: Ref, w: Ref, b: Ref | None) -> Blocks:
        """Return x w + b, x [..., C], as blocks of channels [1, N, 1, L]."""
        rows = reshape(op, x, (math.prod(x.shape[:-1]), x.shape[-1]))
        return _product(op, _quarters(op, rows, self.levels), as_filters(op, w), b, _of_rows, op.Sub)

    def second(self, op: ReplacementBuilder, x: Blocks, w: Ref, b: Ref | None) -> Blocks:
        """Return x w + b, x and the result blocks of channels. A difference is a sum with a convolution, which stays in
        ONNX Runtime's blocked layout as Sub does not."""

        def minus(x: Ref, y: Ref) -> Ref:
            difference: Ref = op.Add(times(op, y, Fraction(-1)), x)
            return difference

        return _product(op, x, as_filters(op, w), b, _of_channels, minus)

    def restored(self, op: ReplacementBuilder, m: Match, x: Blocks) -> Ref:
        """Return the result in the shape that it had."""
        shape = m.root().shape
        return reshape(op, _joined(op, x, math.prod(shape[:-1])), shape)


def _quarters(op: ReplacementBuilder, x: Ref, levels: int) -> Blocks:
    """Cut a matrix [L, C] into blocks; halves of an odd number of rows share one."""
    if levels == 0:
        return x
    rows, columns = x.shape
    half = -(-rows // 2)
    if rows % 2:
        halves = [take(op, x, {0: range(start, start + half)}) for start in (0, rows - half)]
    else:
        halves = [*split(op, x, (half, half), 0)]
    cut = [part for side in halves for part in split(op, side, (columns // 2,) * 2, 1)]
    return tuple(_quarters(op, part, levels - 1) for part in cut)


def _each(function: Callable[..., Ref], *blocks: Blocks) -> Blocks:
    """Apply a function to the blocks at the same position."""
    if isinstance(blocks[0], Ref):
        return function(*blocks)
    return tuple(_each(function, *same) for same in zip(*blocks, strict=True))


def _product(
    op: ReplacementBuilder, x: Blocks, w: Ref, b: Ref | None, multiply: Callable[..., Ref], minus: Callable[..., Ref],
    total: Blocks | None = None,
) -> Blocks:  # fmt: skip
    """Return x w + b + total, where `multiply` and `minus` compute x w + b and x - y of blocks; w are filters [N, C, 1,
    1]."""
    if isinstance(x, Ref):
        result: Ref = multiply(op, x, w, b)
        return result if total is None else op.Add(total, result)

    def product(x: Blocks, w: Ref, b: Ref | None = None, total: Blocks | None = None) -> Blocks:
        return _product(op, x, w, b, multiply, minus, total)

    def plus(x: Blocks, y: Blocks) -> Blocks:
        return _each(op.Add, x, y)

    columns, rows = ((size // 2,) * 2 for size in w.shape[:2])
    (w11, w21), (w12, w22) = (parts(op, side, rows, 1) for side in parts(op, w, columns, 0))
    b1, b2 = (None, None) if b is None else parts(op, b, columns, 0)
    x11, x12, x21, x22 = x
    s1 = plus(x21, x22)
    s2 = _each(minus, s1, x11)
    t1 = op.Sub(w12, w11)
    t2 = op.Sub(w22, t1)
    # All quarters of the result contain p1, those of its right half p5: so does each its bias.
    p1 = product(x11, w11, b1)
    p5 = product(s1, t1, None if b is None else op.Sub(b2, b1))
    u1 = product(s2, t2, total=p1)
    u2 = product(_each(minus, x11, x21), op.Sub(w22, w12), total=u1)
    found: Blocks = (
        product(x12, w21, total=p1),
        product(_each(minus, x12, s2), w22, total=plus(u1, p5)),
        product(x22, op.Sub(w21, t2), total=u2),
        plus(u2, p5),
    )
    return found if total is None else plus(found, total)


def _of_channels(op: ReplacementBuilder, x: Ref, w: Ref, b: Ref | None) -> Ref:
    result: Ref = op.Conv(x, w, b, kernel_shape=(1, 1))
    return result


def _of_rows(op: ReplacementBuilder, x: Ref, w: Ref, b: Ref | None) -> Ref:
    return _of_channels(op, to_channels(op, x), w, b)


def _joined(op: ReplacementBuilder, x: Blocks, rows: int) -> Ref:
    """Return blocks of channels [1, N, 1, L] as a matrix [rows, N]."""
    if isinstance(x, Ref):
        return from_channels(op, x, (x.shape[3], x.shape[1]))
    half = -(-rows // 2)
    upper, lower = (_side_by_side(op, pair, half) for pair in (x[:2], x[2:]))
    return concat(op, [upper, take(op, lower, {0: range(rows % 2, half)})], 0)


def _side_by_side(op: ReplacementBuilder, pair: tuple[Blocks, ...], rows: int) -> Ref:
    """Return the left and the right half of a matrix [rows, N], joined while they are channels where they can be."""
    images = [block for block in pair if isinstance(block, Ref)]
    if images:
        return _joined(op, concat(op, images, 1), rows)
    return concat(op, [_joined(op, block, rows) for block in pair], 1)


class StrassenLinear(_Strassen):
    """Add(MatMul(x, w), b) = S(x; w, b): seven pointwise convolutions of quarters of x, and sums; w a constant matrix
    and b constant per column"""

    least_rows = 256

    def source(self, op: PatternBuilder, x: Any, w: Const, b: Const) -> Any:
        return op.Add(op.MatMul(x, w), b)

    def check(self, m: Match, x: Ref, w: Ref, b: Ref) -> Refusal | None:
        return self.refuse(x, (w, b))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref, b: Ref) -> Any:
        return self.restored(op, m, self.first(op, x, w, as_vector(op, b, w.shape[1])))


class StrassenMatMul(_Strassen):
    """MatMul(x, w) = S(x; w): seven pointwise convolutions of quarters of x, and sums; w a constant matrix"""

    least_rows = 256

    def source(self, op: PatternBuilder, x: Any, w: Const) -> Any:
        return op.MatMul(x, w)

    def check(self, m: Match, x: Ref, w: Ref) -> Refusal | None:
        if has_bias(m, m.root()):
            return Refusal("the product has a constant bias, which belongs into the convolution")
        return self.refuse(x, (w, None))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, w: Ref) -> Any:
        return self.restored(op, m, self.first(op, x, w, None))


class StrassenFeedForward(_Strassen):
    """Add(MatMul(f(Add(MatMul(x, v), a)), w), b) = S(f(S(x; v, a)); w, b) for f in Gelu, Relu: seven pointwise
    convolutions of quarters for each layer, and sums; all but x constant"""

    least_rows = 64

    def source(self, op: PatternBuilder, x: Any, v: Const, a: Const, w: Const, b: Const) -> Any:
        hidden = op.any_of(("Gelu", "Relu"))(op.Add(op.MatMul(x, v), a), _label="f")
        return op.Add(op.MatMul(hidden, w), b)

    def check(self, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Refusal | None:
        return self.refuse(x, (v, a), (w, b))

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref) -> Any:
        hidden = _each(lambda part: apply_like(op, m, "f", part), self.first(op, x, v, as_vector(op, a, v.shape[1])))
        return self.restored(op, m, self.second(op, hidden, w, as_vector(op, b, w.shape[1])))


class StrassenFeedForwardTwice(StrassenFeedForward):
    """Add(MatMul(f(Add(MatMul(x, v), a)), w), b) = S(f(S(x; v, a)); w, b) for f in Gelu, Relu: 49 pointwise
    convolutions of sixteenths for each layer, and sums; all but x constant"""

    levels = 2
    least_rows = 384
    error_growth = 4e-6


RULES = (StrassenLinear, StrassenMatMul, StrassenFeedForward, StrassenFeedForwardTwice)
