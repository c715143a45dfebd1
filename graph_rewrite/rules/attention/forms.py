"""Forms of attention: `Attention` with its heads packed or not, back as the core, and as com.microsoft's
MultiHeadAttention."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, Maybe, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.attention.core import SPLIT, SPLIT_KEY
from graph_rewrite.rules.helpers.axes import reshape

_ATTRIBUTES = frozenset({
    "is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision",
})  # fmt: skip
"""Attributes of Attention up to opset 24."""


class _Form(Rule):
    family = "attention"


def triangle(queries: int, keys: int) -> np.ndarray[Any, Any]:
    """Return the mask of causal attention, which is added to the scores: 0 up to the diagonal, -inf above; float32
    [queries, keys]."""
    return np.where(np.tri(queries, keys, dtype=np.bool_), 0.0, -np.inf).astype(np.float32)


def additive(mask: Ref) -> np.ndarray[Any, Any]:
    """Return a constant mask as numbers to be added to the scores."""
    array = mask.numpy()
    return np.where(array, 0.0, -np.inf) if array.dtype == np.bool_ else array


def _kept(m: Match) -> dict[str, Any]:
    """Return the attributes of the Attention node without its numbers of heads."""
    return {name: value for name, value in m.attrs("attention").items() if not name.endswith("num_heads")}


def _head_size(m: Match, q: Ref) -> int:
    return q.shape[3] if q.rank == 4 else q.shape[2] // int(m.attrs("attention")["q_num_heads"])


def _scale(m: Match, q: Ref) -> float:
    return float(m.attrs("attention").get("scale", _head_size(m, q) ** -0.5))


def refuse_later(m: Match) -> Refusal | None:
    """Refuse an Attention node with attributes of an opset later than 24, such as the sizes of a window of keys."""
    unknown = m.attrs("attention").keys() - _ATTRIBUTES
    return Refusal(f"the meaning of {', '.join(sorted(unknown))} is not known") if unknown else None


def _refuse_plain(m: Match, q: Ref, k: Ref, mask: Ref | None) -> Refusal | None:
    """Refuse an Attention node that computes more than a plain Softmax over the scores."""
    if (refusal := refuse_later(m)) is not None:
        return refusal
    attrs = m.attrs("attention")
    if attrs.get("softcap"):
        return Refusal("the node caps its scores")
    if attrs.get("softmax_precision", q.dtype) != q.dtype:
        return Refusal("the node's Softmax has another precision")
    if mask is None:
        return None
    if mask.shape[-1:] != (k.shape[-2],):
        return Refusal("the mask is shorter than the keys")
    seen = np.tri(q.shape[-2], k.shape[-2], dtype=np.bool_) if attrs.get("is_causal", 0) else np.True_
    if not mask.is_const or not (np.isfinite(additive(mask)) & seen).any(axis=-1).all():
        return Refusal("the mask may hide all keys from a query, where Attention gives zeros and a plain Softmax NaN")
    return None


class PackAttention(_Form):
    """Merge(Attention(Split(q), Split(k), Split(v), mask)) = Attention(q, k, v, mask; heads)

    Split(x) is Transpose(Reshape(x), [0, 2, 1, 3]), and Merge(x) is Reshape(Transpose(x, [0, 2, 1, 3])).
    """

    def source(
        self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe, s1: Any, s2: Any, s3: Any, s4: Any
    ) -> Any:
        parts = zip((q, k, v), (s1, s2, s3), "qkv", strict=True)
        heads = [op.Transpose(op.Reshape(x, shape, _label=label), perm=SPLIT) for x, shape, label in parts]
        return op.Reshape(op.Transpose(op.Attention(*heads, mask, _label="attention"), perm=SPLIT), s4)

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, *shapes: Ref) -> Any:
        split = [m.value(label).shape for label in "qkv"]
        packed = (reshape(op, x, (b, t, h * d)) for x, (b, t, h, d) in zip((q, k, v), split, strict=True))
        heads = {"q_num_heads": split[0][2], "kv_num_heads": split[1][2]}
        return reshape(op, op.Attention(*packed, mask, **_kept(m), **heads), m.root().shape)


class UnpackAttention(_Form):
    """Attention(q, k, v, mask; heads) = Merge(Attention(Split(q), Split(k), Split(v), mask))

    Split(x) is Transpose(Reshape(x), [0, 2, 1, 3]), and Merge(x) is Reshape(Transpose(x, [0, 2, 1, 3])).
    """

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe) -> Any:
        return op.Attention(q, k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Refusal | None:
        return None if q.rank == 3 else Refusal("the heads are an axis of their own already")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Any:
        attrs = m.attrs("attention")
        heads = (attrs["q_num_heads"], attrs["kv_num_heads"], attrs["kv_num_heads"])
        split = (_split(op, x, count, SPLIT) for x, count in zip((q, k, v), heads, strict=True))
        return _merged(op, m, op.Attention(*split, mask, **_kept(m)))


class ExpandAttention(_Form):
    """Attention(q, k, v, mask; scale) = MatMul(Softmax(MatMul(q, Transpose(k)) * scale + mask), v)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe) -> Any:
        return op.Attention(q, k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Refusal | None:
        attrs = m.attrs("attention")
        heads = (attrs["q_num_heads"], attrs["kv_num_heads"]) if q.rank == 3 else (q.shape[1], k.shape[1])
        if heads[0] != heads[1]:
            return Refusal("several heads share a key")
        return _refuse_plain(m, q, k, mask)

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Any:
        scale, queries, keys = _scale(m, q), q.shape[-2], k.shape[-2]
        attrs, dtype = m.attrs("attention"), helper.tensor_dtype_to_np_dtype(q.dtype)
        packed = q.rank == 3
        if packed:
            perms = (SPLIT, SPLIT_KEY, SPLIT)
            q, k, v = (_split(op, x, attrs["q_num_heads"], perm) for x, perm in zip((q, k, v), perms, strict=True))
        else:
            k = op.Transpose(k, perm=(0, 1, 3, 2))
        scores = op.MatMul(q, k)
        if scale != 1.0:
            scores = op.Mul(scores, op.constant(np.array(scale, dtype)))
        if mask is not None:
            scores = op.Add(scores, op.constant(additive(mask).astype(dtype)))
        if attrs.get("is_causal", 0):
            scores = op.Add(scores, op.constant(triangle(queries, keys).astype(dtype)))
        context = op.MatMul(op.Softmax(scores, axis=-1), v)
        return _merged(op, m, context) if packed else context


def _split(op: ReplacementBuilder, x: Ref, heads: int, perm: tuple[int, ...]) -> Ref:
    """Return [batch, length, heads * size] with the axes of [batch, length, heads, size] permuted."""
    batch, length, hidden = x.shape
    result: Ref = op.Transpose(op.Reshape(x, op.ints(batch, length, heads, hidden // heads)), perm=perm)
    return result


def _merged(op: ReplacementBuilder, m: Match, context: Ref) -> Ref:
    return reshape(op, op.Transpose(context, perm=SPLIT), m.root().shape)


class AttentionAsMultiHead(_Form):
    """Attention(q, k, v, mask; heads, scale) = MultiHeadAttention(q, k, v, attention_bias=mask; heads, scale)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe) -> Any:
        return op.Attention(q, k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Refusal | None:
        attrs = m.attrs("attention")
        if q.rank != 3 or attrs["q_num_heads"] != attrs["kv_num_heads"]:
            return Refusal("MultiHeadAttention takes packed heads, as many of the keys as of the queries")
        if q.dtype != TensorProto.FLOAT:
            return Refusal("MultiHeadAttention runs in float32 only")
        if attrs.get("is_causal", 0) and q.shape[1] != k.shape[1]:
            return Refusal("the runtimes differ in what is causal when queries and keys differ in number")
        return _refuse_plain(m, q, k, mask)

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Any:
        attrs = m.attrs("attention")
        bias = None
        if mask is not None:
            added = np.broadcast_to(additive(mask), (*mask.shape[:-2], q.shape[1], k.shape[1])).astype(np.float32)
            bias = op.constant(added.reshape((*(1,) * (4 - added.ndim), *added.shape)))
        return op.ms.MultiHeadAttention(
            q, k, v, None, None, bias, num_heads=attrs["q_num_heads"], scale=_scale(m, q),
            unidirectional=1 if attrs.get("is_causal", 0) else None,
        )  # fmt: skip


class MultiHeadAsAttention(_Form):
    """MultiHeadAttention(q, k, v, attention_bias=mask; heads, scale) = Attention(q, k, v, mask; heads, scale)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe) -> Any:
        return op.ms.MultiHeadAttention(q, k, v, None, None, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Refusal | None:
        if q.rank != 3 or k.rank != 3 or v.rank != 3:
            return Refusal("query, key and value are packed in one tensor")
        if m.attrs("attention").get("unidirectional", 0) and q.shape[1] != k.shape[1]:
            return Refusal("the runtimes differ in what is causal when queries and keys differ in number")
        return None

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None) -> Any:
        attrs = m.attrs("attention")
        heads = attrs["num_heads"]
        return op.Attention(
            q, k, v, mask, q_num_heads=heads, kv_num_heads=heads, scale=attrs.get("scale", 0.0) or None,
            is_causal=1 if attrs.get("unidirectional", 0) else None,
        )  # fmt: skip


class ProjectionBiasIntoMultiHead(_Form):
    """MultiHeadAttention(q + a, k + b, v + c, mask) = MultiHeadAttention(q, k, v, Concat(a, b, c), mask)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe, a: Const, b: Const, c: Const) -> Any:
        parts = (op.Add(x, bias) for x, bias in ((q, a), (k, b), (v, c)))
        return op.ms.MultiHeadAttention(*parts, None, None, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, *biases: Ref) -> Refusal | None:
        fits = all(bias.shape == x.shape[-1:] and x.rank == 3 for x, bias in zip((q, k, v), biases, strict=True))
        return None if fits else Refusal("what is added is not one number per channel")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, *biases: Ref) -> Any:
        return op.ms.MultiHeadAttention(q, k, v, op.Concat(*biases, axis=0), None, mask, **m.attrs("attention"))


class ProjectionBiasOutOfMultiHead(_Form):
    """MultiHeadAttention(q, k, v, Concat(a, b, c), mask) = MultiHeadAttention(q + a, k + b, v + c, mask)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe, bias: Const) -> Any:
        return op.ms.MultiHeadAttention(q, k, v, bias, None, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, bias: Ref) -> Refusal | None:
        packed = all(x.rank == 3 for x in (q, k, v))
        return None if packed else Refusal("query, key and value are packed in one tensor")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, bias: Ref) -> Any:
        sizes = op.ints(*(x.shape[2] for x in (q, k, v)))
        parts = op.Split(bias, sizes, axis=0, _outputs=3)
        inputs = (op.Add(x, part) for x, part in zip((q, k, v), parts, strict=True))
        return op.ms.MultiHeadAttention(*inputs, None, None, mask, **m.attrs("attention"))


class ScaleOfQueryIntoAttention(_Form):
    """Attention(q * a, k, v, mask; scale) = Attention(q, k, v, mask; a * scale)"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Maybe, a: Scalar) -> Any:
        return op.Attention(op.Mul(q, a), k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, a: Ref) -> Refusal | None:
        return None if a.scalar() > 0 else Refusal(f"Attention takes the root of the scale, not of {a.scalar()}")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref | None, a: Ref) -> Any:
        return op.Attention(q, k, v, mask, **{**m.attrs("attention"), "scale": _scale(m, q) * a.scalar()})


class TransposeOfMergedBatch(_Form):
    """Reshape(Transpose(Reshape(x, [n, t, d]), [0, 2, 1]), [..., d, t]) = Transpose(x, last two axes)

    Exports of scaled_dot_product_attention transpose their keys so.
    """

    def source(self, op: PatternBuilder, x: Any, s1: Any, s2: Any) -> Any:
        return op.Reshape(op.Transpose(op.Reshape(x, s1, _label="merged"), perm=(0, 2, 1)), s2)

    def check(self, m: Match, x: Ref, s1: Ref, s2: Ref) -> Refusal | None:
        if x.rank < 2 or m.value("merged").shape[1:] != x.shape[-2:]:
            return Refusal("the inner Reshape does more than merge the leading axes")
        split = (*x.shape[:-2], x.shape[-1], x.shape[-2])
        return None if m.root().shape == split else Refusal("the outer Reshape does not split the leading axes again")

    def target(self, op: ReplacementBuilder, m: Match, x: Ref, s1: Ref, s2: Ref) -> Any:
        axes = tuple(range(x.rank))
        return op.Transpose(x, perm=(*axes[:-2], axes[-1], axes[-2]))


RULES = (
    PackAttention,
    UnpackAttention,
    ExpandAttention,
    ScaleOfQueryIntoAttention,
    TransposeOfMergedBatch,
    AttentionAsMultiHead,
    MultiHeadAsAttention,
    ProjectionBiasIntoMultiHead,
    ProjectionBiasOutOfMultiHead,
)
