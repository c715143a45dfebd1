"""Layers of an encoder on rows: batch and length merged into one axis, once per layer.

ONNX Runtime computes a product with a bias on matrices, and puts a Reshape before and after every single one. On rows
from the start, products, activations, sums and normalisations need none; attention alone wants its batch back. What is
left between two layers are Reshapes in pairs, which cancel. Only small models notice: each Reshape takes a microsecond.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape
from graph_rewrite.rules.helpers.constants import as_vector, varies_along
from graph_rewrite.rules.helpers.element_types import is_float
from graph_rewrite.rules.helpers.elementwise import apply_like


class _Rows(Rule):
    """Norm(x) is LayerNormalization over the last axis, Linear(x; w) is Add(MatMul(x, w), b), w a matrix and b constant
    per column; Rows(x) is a Reshape that merges all axes but the last, and Back(x) one that restores them."""

    family = "layout"


def _linear(op: PatternBuilder, x: Any, w: Any, b: Any) -> Any:
    return op.Add(op.MatMul(x, w), b)


def _residual_norm(op: PatternBuilder, x: Any, y: Any, scale: Any, shift: Any, name: str) -> Any:
    total = op.any_of(("Add", "Sum"))(y, x, _label=f"{name} sum", _any_order=True)
    return op.LayerNormalization(total, scale, shift, axis=op.attr(f"{name} axis", -1), _label=f"{name} norm")


def _not_rows(x: Ref, *layers: tuple[Ref, Ref]) -> Refusal | None:
    """Refuse linear layers (weight, bias) of x, or of what is computed from it, that cannot be computed on rows."""
    if x.rank < 3 or not is_float(x):
        return Refusal("the operand has no leading axes to merge, or no floating-point numbers")
    for w, b in layers:
        if w.rank != 2:
            return Refusal("a weight is not a matrix")
        if not varies_along(b, 1, w.shape[1]):
            return Refusal("a bias varies along more than the columns")
    return None


def _not_over_last(m: Match, name: str, *parameters: Ref | None) -> Refusal | None:
    """Refuse a normalisation that is not one over the last axis, with a scale and a shift per channel."""
    rank, width = m.value(f"{name} sum").rank, m.value(f"{name} sum").shape[-1:]
    if m.attr(f"{name} axis") not in (-1, rank - 1):
        return Refusal("the normalisation runs over more than the last axis")
    if any(p is not None and p.shape != width for p in parameters):
        return Refusal("scale and shift are not one number per channel")
    return None


def rows(op: ReplacementBuilder, x: Ref) -> Ref:
    """Return [..., C] as [L, C]."""
    return reshape(op, x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _gemm(op: ReplacementBuilder, x: Ref, w: Ref, b: Ref) -> Ref:
    result: Ref = op.Gemm(x, w, as_vector(op, b, w.shape[1]))
    return result


def _normalised(op: ReplacementBuilder, m: Match, name: str, y: Ref, x: Ref, scale: Ref, shift: Ref | None) -> Ref:
    node = m.node(f"{name} norm")
    total = apply_like(op, m, f"{name} sum", y, x)
    attrs = {**node.attrs, "axis": -1}
    return op.apply(node.op, node.domain, attrs, (total, scale, shift) if shift is not None else (total, scale), 1)[0]


def _attend(op: PatternBuilder, x: Any, mask: Any, weights: Sequence[Any]) -> Any:
    wq, bq, wk, bk, wv, bv, wo, bo = weights
    heads = (_linear(op, x, wq, bq), _linear(op, x, wk, bk), _linear(op, x, wv, bv))
    return _linear(op, op.Attention(*heads, mask, _label="attention"), wo, bo)


def _attended(
    op: ReplacementBuilder, m: Match, x: Ref, lead: tuple[int, ...], mask: Ref | None, w: Sequence[Ref]
) -> Ref:
    """Return the attention layer up to its last product, of rows x that stand for [*lead, C]."""
    heads = (reshape(op, _gemm(op, x, w[i], w[i + 1]), (*lead, w[i].shape[1])) for i in (0, 2, 4))
    context = op.Attention(*heads, mask, **m.attrs("attention"))
    return _gemm(op, rows(op, context), w[6], w[7])


class AttentionLayerAsRows(_Rows):
    """Norm(Linear(Attention(Linear(x; q), Linear(x; k), Linear(x; v), mask); o) + x) =
    Back(Norm(Gemm(Rows(Attention(Back(Gemm(Rows(x); q)), ..., mask)); o) + Rows(x)))"""

    def source(
        self, op: PatternBuilder, x: Any, mask: Maybe, wq: Const, bq: Const, wk: Const, bk: Const, wv: Const,
        bv: Const, wo: Const, bo: Const, g: Const, s: Maybe,
    ) -> Any:  # fmt: skip
        return _residual_norm(op, x, _attend(op, x, mask, (wq, bq, wk, bk, wv, bv, wo, bo)), g, s, "first")

    def check(self, m: Match, x: Ref, mask: Ref | None, *refs: Ref) -> Refusal | None:
        *weights, g, s = refs
        return _not_rows(x, *_pairs(weights)) or _not_over_last(m, "first", g, s)

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, mask: Ref | None, *refs: Ref) -> Any:
        *weights, g, s = refs
        start = rows(op, x)
        y = _attended(op, m, start, x.shape[:-1], mask, weights)
        return reshape(op, _normalised(op, m, "first", y, start, g, s), x.shape)


def _pairs(weights: Sequence[Ref]) -> list[tuple[Ref, Ref]]:
    return list(zip(weights[::2], weights[1::2], strict=True))


def _feed_forward(op: PatternBuilder, x: Any, v: Any, a: Any, w: Any, b: Any) -> Any:
    return _linear(op, op.any_of(("Gelu", "Relu"))(_linear(op, x, v, a), _label="f"), w, b)


class FeedForwardAsRows(_Rows):
    """Norm(Linear(f(Linear(x; v)); w) + x) = Back(Norm(Gemm(f(Gemm(Rows(x); v)); w) + Rows(x))) for f in Gelu, Relu"""

    def source(self, op: PatternBuilder, x: Any, v: Const, a: Const, w: Const, b: Const, g: Const, s: Maybe) -> Any:
        return _residual_norm(op, x, _feed_forward(op, x, v, a, w, b), g, s, "second")

    def check(self, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref, g: Ref, s: Ref | None) -> Refusal | None:
        return _not_rows(x, (v, a), (w, b)) or _not_over_last(m, "second", g, s)

    def target(
        self, op: ReplacementBuilder, m: Match, x: Ref, v: Ref, a: Ref, w: Ref, b: Ref, g: Ref, s: Ref | None
    ) -> Any:
        start = rows(op, x)
        y = _gemm(op, apply_like(op, m, "f", _gemm(op, start, v, a)), w, b)
        return reshape(op, _normalised(op, m, "second", y, start, g, s), x.shape)


class EncoderLayerAsRows(_Rows):
    """An attention layer and a feed-forward network, as `AttentionLayerAsRows` and `FeedForwardAsRows` rewrite them, in
    one step: FeedForward(Attend(x)) = Back(FeedForward'(Attend'(Rows(x))))"""

    def source(
        self, op: PatternBuilder, x: Any, mask: Maybe, wq: Const, bq: Const, wk: Const, bk: Const, wv: Const,
        bv: Const, wo: Const, bo: Const, g: Const, s: Maybe, v: Const, a: Const, w: Const, b: Const, h: Const, t: Maybe,
    ) -> Any:  # fmt: skip
        n = _residual_norm(op, x, _attend(op, x, mask, (wq, bq, wk, bk, wv, bv, wo, bo)), g, s, "first")
        return _residual_norm(op, n, _feed_forward(op, n, v, a, w, b), h, t, "second")

    def check(self, m: Match, x: Ref, mask: Ref | None, *refs: Ref) -> Refusal | None:
        weights, (g, s, v, a, w, b, h, t) = refs[:8], refs[8:]
        return (
            _not_rows(x, *_pairs(weights), (v, a), (w, b))
            or _not_over_last(m, "first", g, s)
            or _not_over_last(m, "second", h, t)
        )

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, mask: Ref | None, *refs: Ref) -> Any:
        weights, (g, s, v, a, w, b, h, t) = refs[:8], refs[8:]
        start = rows(op, x)
        y = _attended(op, m, start, x.shape[:-1], mask, weights)
        middle = _normalised(op, m, "first", y, start, g, s)
        y = _gemm(op, apply_like(op, m, "f", _gemm(op, middle, v, a)), w, b)
        return reshape(op, _normalised(op, m, "second", y, middle, h, t), x.shape)


RULES = (AttentionLayerAsRows, FeedForwardAsRows, EncoderLayerAsRows)
