"""Attention: the core of a transformer layer as the operator `Attention` of opset 23.

The core is MatMul(Softmax(scores), v), where the scores are q times the transposed k, scaled and perhaps masked.
Exports differ in where they scale, so there is a rule for each form: over heads that are an axis of their own ([batch,
heads, length, size] or [batch * heads, length, size]), and over packed heads ([batch, length, heads * size], split and
merged by Reshape and Transpose) in one step. The rules of `forms` lead from these to other forms.

Variables of all patterns here: queries q, keys k, values v, the added mask; the scores' factor c or divisor d; factors
a of the queries and b of the keys; shapes s1 to s4 of the Reshapes.
"""

from __future__ import annotations

import math
from typing import Any

from onnx import TensorProto

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.helpers.axes import reshape, transpose

SPLIT = (0, 2, 1, 3)
"""The permutation between [batch, length, heads, size] and [batch, heads, length, size], either way."""
SPLIT_KEY = (0, 2, 3, 1)
"""The permutation from [batch, length, heads, size] to [batch, heads, size, length]."""


def _fitted(op: ReplacementBuilder, mask: Ref | None, scores: tuple[int, ...]) -> Ref | Refusal | None:
    """Return the mask with its last two axes in full, as ONNX Runtime's kernels demand."""
    if mask is None:
        return None
    if mask.rank > len(scores) or any(m not in (1, s) for m, s in zip(mask.shape[::-1], scores[::-1], strict=False)):
        return Refusal(f"a mask of shape {mask.shape} enlarges the scores of shape {scores}")
    if mask.rank >= 2 and mask.shape[-2:] == scores[-2:]:
        return mask
    result: Ref = op.Expand(mask, op.ints(*mask.shape[:-2], *scores[-2:]))
    return result


def _scale(bound: dict[str, Ref]) -> float:
    """Return the factor of the scores; 0 for a divisor of 0."""
    divisor = bound["d"].scalar() if "d" in bound else 1.0
    factors = (bound[name].scalar() for name in "abc" if name in bound)
    return math.prod(factors) / divisor if divisor else 0.0


class _Fuse(Rule):
    family = "attention"

    def check(self, m: Match, *refs: Ref) -> Refusal | None:
        q, scale = refs[0], _scale(_bound(m))
        if q.dtype not in (TensorProto.FLOAT, TensorProto.FLOAT16):
            return Refusal("Attention runs in float32 and float16 only")
        if m.attr("axis") not in (-1, m.value("weights").rank - 1):
            return Refusal("the Softmax does not run over the keys")
        return None if scale > 0 else Refusal(f"Attention takes the root of the scale, which is {scale}")


def _bound(m: Match) -> dict[str, Ref]:
    return {variable.name: ref for variable, ref in zip(m.pattern.variables, m.refs, strict=True)}


def _weigh(op: PatternBuilder, scores: Any, v: Any) -> Any:
    return op.MatMul(op.Softmax(scores, axis=op.attr("axis", -1), _label="weights"), v)


class _FuseHeads(_Fuse):
    """q and k are [batch, heads, length, size] or [batch * heads, length, size] (k in any order of its axes)."""

    def scores(self, op: PatternBuilder, q: Any, k: Any) -> Any:
        return op.MatMul(q, op.Transpose(k, perm=op.attr("perm")))

    def root_scaled(self, op: PatternBuilder, q: Any, k: Any, a: Any, b: Any) -> Any:
        return op.MatMul(op.Mul(q, a), op.Mul(op.Transpose(k, perm=op.attr("perm")), b))

    def mask(self, op: ReplacementBuilder, m: Match) -> Ref | None:
        """Return what is added to the scores."""
        return _bound(m).get("mask")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, *others: Ref) -> Any:
        rank, perm, bound = q.rank, m.attr("perm"), _bound(m)
        if rank not in (3, 4) or perm is None or len(perm) != rank or v.rank != rank:
            return Refusal("query, key and value do not all have 3 or all have 4 axes")
        key = transpose(op, k, (*perm[:-2], perm[-1], perm[-2]))
        if not q.shape[:-2] == key.shape[:-2] == v.shape[:-2]:
            return Refusal("batches or heads of query, key and value differ")
        mask = _fitted(op, self.mask(op, m), (*q.shape[:-1], key.shape[-2]))
        if isinstance(mask, Refusal):
            return mask
        if rank == 4:
            return op.Attention(q, key, v, mask, scale=_scale(bound))
        inputs = (op.Unsqueeze(x, op.ints(0)) for x in (q, key, v))
        return op.Squeeze(op.Attention(*inputs, mask, scale=_scale(bound)), op.ints(0))


class FuseAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k)) * c), v) = Attention(q, k, v; scale=c)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, c: Scalar) -> Any:
        return _weigh(op, op.Mul(self.scores(op, q, k), c), v)


class FuseMaskedAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k)) * c + mask), v) = Attention(q, k, v, mask; scale=c)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, c: Scalar, mask: Any) -> Any:
        return _weigh(op, op.Add(op.Mul(self.scores(op, q, k), c), mask), v)


class FuseDividedAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k)) / d), v) = Attention(q, k, v; scale=1/d)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, d: Scalar) -> Any:
        return _weigh(op, op.Div(self.scores(op, q, k), d), v)


class FuseDividedMaskedAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k)) / d + mask), v) = Attention(q, k, v, mask; scale=1/d)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, d: Scalar, mask: Any) -> Any:
        return _weigh(op, op.Add(op.Div(self.scores(op, q, k), d), mask), v)


class FuseUnscaledAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k))), v) = Attention(q, k, v; scale=1)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any) -> Any:
        return _weigh(op, self.scores(op, q, k), v)


class FuseUnscaledMaskedAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q, Transpose(k)) + mask), v) = Attention(q, k, v, mask; scale=1)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return _weigh(op, op.Add(self.scores(op, q, k), mask), v)


class FuseShiftedWindowAttention(_FuseHeads):
    """MatMul(Softmax(Reshape(Reshape(MatMul(q, Transpose(k)) + b) + mask)), v) = Attention(q, k, v, b + mask; scale=1),
    b and mask constant

    Swin's bias of relative positions and its mask of shifted windows, which are an axis of their own (Liu et al.,
    "Swin Transformer", 2021, section 3.2).
    """

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, positions: Const, windows: Const, s1: Any, s2: Any
    ) -> Any:  # fmt: skip
        scores = op.Add(self.scores(op, q, k), positions, _label="scores")
        return _weigh(op, op.Reshape(op.Add(op.Reshape(scores, s1), windows, _label="masked"), s2), v)

    def check(self, m: Match, *refs: Ref) -> Refusal | None:
        restored = m.value("weights").shape == m.value("scores").shape
        return super().check(m, *refs) if restored else Refusal("the mask or a Reshape changes the shape of the scores")

    def mask(self, op: ReplacementBuilder, m: Match) -> Ref | None:
        bound, scores = _bound(m), m.value("scores").shape
        positions = reshape(op, op.Expand(bound["positions"], op.ints(*scores)), m.value("masked").shape)
        return reshape(op, op.Add(positions, bound["windows"]), scores)


class FuseRootScaledAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q * a, Transpose(k) * b)), v) = Attention(q, k, v; scale=a*b)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, a: Scalar, b: Scalar) -> Any:
        return _weigh(op, self.root_scaled(op, q, k, a, b), v)


class FuseRootScaledMaskedAttention(_FuseHeads):
    """MatMul(Softmax(MatMul(q * a, Transpose(k) * b) + mask), v) = Attention(q, k, v, mask; scale=a*b)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, a: Scalar, b: Scalar, mask: Any) -> Any:
        return _weigh(op, op.Add(self.root_scaled(op, q, k, a, b), mask), v)


class _FusePacked(_Fuse):
    """Split(x) is Transpose(Reshape(x), [0, 2, 1, 3]), SplitT(x) is Transpose(Reshape(x), [0, 2, 3, 1]), Merge(x) is
    Reshape(Transpose(x, [0, 2, 1, 3])); q, k and v may have any shape, usually [batch, length, heads * size]."""

    def split(self, op: PatternBuilder, x: Any, shape: Any, label: str, perm: tuple[int, ...] = SPLIT) -> Any:
        return op.Transpose(op.Reshape(x, shape, _label=label), perm=perm)

    def scores(self, op: PatternBuilder, q: Any, k: Any, s1: Any, s2: Any) -> Any:
        return op.MatMul(self.split(op, q, s1, "q"), self.split(op, k, s2, "k", SPLIT_KEY))

    def root_scaled(self, op: PatternBuilder, q: Any, k: Any, a: Any, b: Any, s1: Any, s2: Any) -> Any:
        return op.MatMul(op.Mul(self.split(op, q, s1, "q"), a), op.Mul(self.split(op, k, s2, "k", SPLIT_KEY), b))

    def merge(self, op: PatternBuilder, scores: Any, v: Any, s3: Any, s4: Any) -> Any:
        return op.Reshape(op.Transpose(_weigh(op, scores, self.split(op, v, s3, "v")), perm=SPLIT), s4)

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, *others: Ref) -> Any:
        shapes, bound = [m.value(label).shape for label in "qkv"], _bound(m)
        batch, length, heads, _ = shapes[0]
        if any((shape[0], shape[2]) != (batch, heads) for shape in shapes):
            return Refusal("batches or heads of query, key and value differ")
        mask = _fitted(op, bound.get("mask"), (batch, heads, length, shapes[1][1]))
        if isinstance(mask, Refusal):
            return mask
        inputs = (reshape(op, x, (*shape[:2], heads * shape[3])) for x, shape in zip((q, k, v), shapes, strict=True))
        context = op.Attention(*inputs, mask, q_num_heads=heads, kv_num_heads=heads, scale=_scale(bound))
        return reshape(op, context, m.root().shape)


class FusePackedAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q), SplitT(k)) * c), Split(v))) = Attention(q, k, v; heads, scale=c)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, c: Scalar, s1: Any, s2: Any, s3: Any, s4: Any) -> Any:
        return self.merge(op, op.Mul(self.scores(op, q, k, s1, s2), c), v, s3, s4)


class FusePackedMaskedAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q), SplitT(k)) * c + mask), Split(v)))
    = Attention(q, k, v, mask; heads, scale=c)"""

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, c: Scalar, mask: Any, s1: Any, s2: Any, s3: Any, s4: Any
    ) -> Any:
        return self.merge(op, op.Add(op.Mul(self.scores(op, q, k, s1, s2), c), mask), v, s3, s4)


class FusePackedDividedAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q), SplitT(k)) / d), Split(v))) = Attention(q, k, v; heads, scale=1/d)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, d: Scalar, s1: Any, s2: Any, s3: Any, s4: Any) -> Any:
        return self.merge(op, op.Div(self.scores(op, q, k, s1, s2), d), v, s3, s4)


class FusePackedDividedMaskedAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q), SplitT(k)) / d + mask), Split(v)))
    = Attention(q, k, v, mask; heads, scale=1/d)"""

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, d: Scalar, mask: Any, s1: Any, s2: Any, s3: Any, s4: Any
    ) -> Any:
        return self.merge(op, op.Add(op.Div(self.scores(op, q, k, s1, s2), d), mask), v, s3, s4)


class FusePackedRootScaledAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q) * a, SplitT(k) * b)), Split(v))) = Attention(q, k, v; heads, scale=a*b)"""

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, a: Scalar, b: Scalar, s1: Any, s2: Any, s3: Any, s4: Any
    ) -> Any:
        return self.merge(op, self.root_scaled(op, q, k, a, b, s1, s2), v, s3, s4)


class FusePackedRootScaledMaskedAttention(_FusePacked):
    """Merge(MatMul(Softmax(MatMul(Split(q) * a, SplitT(k) * b) + mask), Split(v)))
    = Attention(q, k, v, mask; heads, scale=a*b)"""

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, a: Scalar, b: Scalar, mask: Any, s1: Any, s2: Any, s3: Any,
        s4: Any,
    ) -> Any:  # fmt: skip
        return self.merge(op, op.Add(self.root_scaled(op, q, k, a, b, s1, s2), mask), v, s3, s4)


RULES = (
    FusePackedAttention,
    FusePackedMaskedAttention,
    FusePackedDividedAttention,
    FusePackedDividedMaskedAttention,
    FusePackedRootScaledAttention,
    FusePackedRootScaledMaskedAttention,
    FuseAttention,
    FuseMaskedAttention,
    FuseDividedAttention,
    FuseDividedMaskedAttention,
    FuseUnscaledAttention,
    FuseUnscaledMaskedAttention,
    FuseShiftedWindowAttention,
    FuseRootScaledAttention,
    FuseRootScaledMaskedAttention,
)
