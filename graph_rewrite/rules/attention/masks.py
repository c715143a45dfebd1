"""Masks of attention: constant ones dropped or turned into a flag, and causal attention in blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from onnx import helper

from graph_rewrite.rewriting.match import Match
from graph_rewrite.rewriting.patterns import Const, PatternBuilder, Scalar
from graph_rewrite.rewriting.replacement import Ref, ReplacementBuilder
from graph_rewrite.rewriting.rule import Refusal, Rule
from graph_rewrite.rules.attention.forms import additive, refuse_later, triangle

HIDDEN = -1e9
"""Largest mask value that drops a score: added to a score, it leaves the weight exp(...) = 0 in float32 and in
float64."""
BLOCKS = 4
"""Number of blocks of queries that causal attention is split into; n blocks do (n + 1) / 2n of its arithmetic."""


class _Mask(Rule):
    family = "attention"


class DropOpenMask(_Mask):
    """Attention(q, k, v, mask) = Attention(q, k, v), where the mask hides nothing"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Const) -> Any:
        return op.Attention(q, k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref) -> Refusal | None:
        if mask.shape[-1:] != (k.shape[-2],):
            return Refusal("the mask is shorter than the keys")
        return Refusal("the mask changes scores") if np.any(additive(mask)) else None

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref) -> Any:
        return op.Attention(q, k, v, **m.attrs("attention"))


class CausalMaskAsFlag(_Mask):
    """Attention(q, k, v, mask) = Attention(q, k, v; is_causal=1), where the mask hides all that comes later

    A mask of finite numbers hides scores that are not as large as itself.
    """

    lossy = frozenset({"huge"})

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any, mask: Const) -> Any:
        return op.Attention(q, k, v, mask, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref) -> Refusal | None:
        queries, keys = q.shape[-2], k.shape[-2]
        if mask.shape[-2:] != (queries, keys):
            return Refusal("the mask does not have a row per query and a column per key")
        added, seen = additive(mask), np.tri(queries, keys, dtype=np.bool_)
        if np.any(added[..., seen]) or not np.all(added[..., ~seen].astype(np.float64) <= HIDDEN):
            return Refusal("the mask is not 0 up to the diagonal and very negative above")
        return None

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref, mask: Ref) -> Any:
        return op.Attention(q, k, v, **{**m.attrs("attention"), "is_causal": 1})


class CausalFlagAsMask(_Mask):
    """Attention(q, k, v; is_causal=1) = Attention(q, k, v, mask), with a mask that hides all that comes later"""

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any) -> Any:
        return op.Attention(q, k, v, is_causal=1, _label="attention")

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref) -> Any:
        mask = triangle(q.shape[-2], k.shape[-2]).astype(helper.tensor_dtype_to_np_dtype(q.dtype))
        return op.Attention(q, k, v, op.constant(mask), **{**m.attrs("attention"), "is_causal": 0})


class SelectionAsMask(_Mask):
    """Softmax(Where(seen, scores, c)) = Softmax(scores + mask), with c very negative: mask is 0 where seen, else c

    A finite c hides scores that are not as large as itself.
    """

    lossy = frozenset({"huge"})

    examples: ClassVar[Mapping[str, Sequence[float]]] = {"c": (-1e9, -1e30, -np.inf)}

    def source(self, op: PatternBuilder, scores: Any, seen: Const, c: Scalar) -> Any:
        return op.Softmax(op.Where(seen, scores, c), axis=op.attr("axis", -1))

    def check(self, m: Match, scores: Ref, seen: Ref, c: Ref) -> Refusal | None:
        if m.opset < 13:
            return Refusal("before opset 13 Softmax works over several axes")
        if m.attr("axis") not in (-1, m.root().rank - 1) or seen.rank == 0:
            return Refusal("the Softmax does not run over the keys")
        if not c.scalar() <= HIDDEN:
            return Refusal(f"what is not seen gets the score {c.scalar()}, which may still matter")
        return None if seen.numpy().any(axis=-1).all() else Refusal("a query sees nothing at all")

    def target(self, op: ReplacementBuilder, m: Match, scores: Ref, seen: Ref, c: Ref) -> Any:
        dtype = helper.tensor_dtype_to_np_dtype(scores.dtype)
        mask = np.where(seen.numpy(), 0.0, c.scalar()).astype(dtype)
        return op.Softmax(op.Add(scores, op.constant(mask)), axis=-1)


class CausalAttentionInBlocks(_Mask):
    """Attention(q, k, v; is_causal=1) = Concat(Attention(q[i], k[:i+1], v[:i+1], mask[i]) for each of 4 blocks i)

    Block i of the queries sees blocks 0 to i of the keys, so that 5/8 of the arithmetic is left.
    """

    def source(self, op: PatternBuilder, q: Any, k: Any, v: Any) -> Any:
        return op.Attention(q, k, v, is_causal=1, _label="attention")

    def check(self, m: Match, q: Ref, k: Ref, v: Ref) -> Refusal | None:
        if (refusal := refuse_later(m)) is not None:
            return refusal
        length = q.shape[-2]
        if length != k.shape[-2]:
            return Refusal("queries and keys differ in number")
        return Refusal(f"{length} queries do not make {BLOCKS} equal blocks") if length % BLOCKS or not length else None

    def target(self, op: ReplacementBuilder, m: Match, q: Ref, k: Ref, v: Ref) -> Any:
        axis, step = q.rank - 2, q.shape[-2] // BLOCKS
        attrs, dtype = m.attrs("attention"), helper.tensor_dtype_to_np_dtype(q.dtype)
        queries = op.Split(q, op.ints(*(step,) * BLOCKS), axis=axis, _outputs=BLOCKS)
        contexts = []
        for i, block in enumerate(queries):
            end = (i + 1) * step
            mask = op.constant(triangle(end, end)[i * step :].astype(dtype))
            seen = (_prefix(op, x, axis, end) for x in (k, v))
            contexts.append(op.Attention(block, *seen, mask, **{**attrs, "is_causal": 0}))
        return op.Concat(*contexts, axis=axis)


def _prefix(op: ReplacementBuilder, x: Ref, axis: int, end: int) -> Ref:
    result: Ref = x if end == x.shape[axis] else op.Slice(x, op.ints(0), op.ints(end), op.ints(axis))
    return result


RULES = (DropOpenMask, CausalMaskAsFlag, CausalFlagAsMask, SelectionAsMask, CausalAttentionInBlocks)
