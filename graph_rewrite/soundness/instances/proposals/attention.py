"""Proposals for attention: heads, masks, groups of queries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from graph_rewrite.soundness.instances.chooser import DeadEnd
from graph_rewrite.soundness.instances.operator_draft import BOOL, OperatorDraft, Proposal
from graph_rewrite.soundness.instances.source_state import Array, Shape

_HEADS = (2, 1, 3)


def propose_attention(a: OperatorDraft) -> None:
    """Attention(q, k, v, mask) with heads as an axis of their own or packed, groups of queries, masks and flags."""
    _attention_attributes(a)
    if all(a.free(i) for i in (0, 1, 2)):
        wanted = a.source.ranks.of_variable(a.variable(0)) or frozenset({3, 4})
        layouts = [layout for layout, rank in (("packed", 3), ("axis", 4)) if rank in wanted]
        _fresh_attention(a, packed=a.pick("heads", layouts) == "packed")
    elif a.known(0):
        _attention_beside(a)
    else:
        raise DeadEnd("the queries come first")
    q, k = a.shape(0), a.shape(1)
    if len(q) not in (3, 4) or len(k) != len(q):
        raise DeadEnd("queries and keys have 3 axes or 4")
    if len(q) == 3:
        a.attr("q_num_heads", (a.notes.get("q_heads", 2),))
        a.attr("kv_num_heads", (a.notes.get("kv_heads", 2),))
    if a.optional(3):
        heads = q[1] if len(q) == 4 else a.attrs["q_num_heads"]
        _mask(a, 3, (q[0], heads, q[-2], k[-2]))


def _attention_attributes(a: OperatorDraft) -> None:
    a.attr("scale", (None, 0.5, 1.0))
    a.attr("is_causal", (None, 1, 0), (4, 2, 1))
    a.attr("softcap", (None, 2.0), (6, 1))


def _fresh_attention(a: OperatorDraft, packed: bool) -> None:
    batch, heads, queries = a.pick("batch", (1, 2)), a.pick("q heads", _HEADS), a.pick("queries", (2, 4, 3, 1, 8))
    groups = a.pick("queries per key", (1, 2) if heads % 2 == 0 else (1,), (4, 1) if heads % 2 == 0 else None)
    keys = a.pick("keys", (queries, 2, 3) if queries not in (2, 3) else (queries, 4), None)
    size, value_size = a.pick("size", (2, 3, 1)), a.pick("value size", ("equal", 4, 1), (3, 1, 1))
    value_size = size if value_size == "equal" else value_size
    shapes = [
        (batch, heads, queries, size),
        (batch, heads // groups, keys, size),
        (batch, heads // groups, keys, value_size),
    ]
    a.notes.update(q_heads=heads, kv_heads=heads // groups)
    for i, (b, h, length, d) in enumerate(shapes):
        a.data(i, (b, length, h * d) if packed else (b, h, length, d))


def _attention_beside(a: OperatorDraft) -> None:
    """Keys and values for known queries."""
    q = a.shape(0)
    if len(q) not in (3, 4):
        raise DeadEnd("queries of another rank")
    packed = len(q) == 3
    heads = a.pick("q heads", [h for h in (2, 1, 3, 4) if q[2] % h == 0]) if packed else q[1]
    a.notes.update(q_heads=heads, kv_heads=heads)
    if packed and not a.free(1) and not a.free(2):
        return
    keys = a.pick("keys", tuple(dict.fromkeys((q[-2], 2, 3))))
    for i in (1, 2):
        if a.free(i):
            size = q[-1] if i == 1 or a.pick("value size", ("equal", "other"), (3, 1)) == "equal" else heads * 2
            a.data(i, (q[0], keys, size) if packed else (*q[:2], keys, size))


def _mask(a: OperatorDraft, i: int, scores: Shape) -> None:
    """A mask to be added to scores [batch, heads, queries, keys], or of truth values."""
    shapes = {"plane": scores[2:], "all": scores, "batch": (scores[0], 1, *scores[2:]), "one": (1, 1, *scores[2:])}
    shapes["row"] = (1, scores[3])
    names = tuple(shapes) if not a.node.domain else ("all", "batch", "one")
    shape = shapes[a.pick("mask shape", names)]
    if not a.is_constant(i):
        dtype = BOOL if not a.node.domain and a.pick("mask", ("numbers", "truth values"), (3, 1)) != "numbers" else None
        a.data(i, shape, dtype)
        return
    kinds = ("random", "causal", "open", "causal -1e9", "truth causal", "truth open", "truth random")
    kind = a.pick("mask content", kinds if not a.node.domain else kinds[:4])
    a.parameter_of(i, mask_content(kind, shape, a.numpy_dtype(), a.source.random(shape, np.dtype(np.float32))))


def mask_content(kind: str, shape: Shape, dtype: np.dtype[Any], numbers: Array) -> Array:
    """Elements of a mask; none of them hides everything from a query."""
    seen = np.broadcast_to(np.tri(*shape[-2:], dtype=np.bool_), shape)
    if kind.startswith("truth"):
        some = (numbers > 0) | seen & (np.arange(shape[-1]) == 0)
        return np.array({"truth causal": seen, "truth open": np.ones(shape, np.bool_)}.get(kind, some))
    if kind.startswith("causal"):
        hidden = max(-1e9, float(np.finfo(dtype).min)) if kind.endswith("9") else -np.inf
        return np.asarray(np.where(seen, 0.0, hidden), dtype=dtype)
    return np.asarray(np.zeros(shape) if kind == "open" else numbers, dtype=dtype)


def propose_multi_head(a: OperatorDraft) -> None:
    """MultiHeadAttention(q, k, v, bias, padding, attention bias; heads, scale) of packed heads."""
    if all(a.free(i) for i in (0, 1, 2)):
        batch, heads, queries = a.pick("batch", (1, 2)), a.pick("heads", _HEADS), a.pick("queries", (2, 3, 1, 4))
        keys, size = a.pick("keys", tuple(dict.fromkeys((queries, 2, 3)))), a.pick("size", (2, 3, 1))
        value_size = a.pick("value size", ("equal", 4, 1), (3, 1, 1))
        value_size = size if value_size == "equal" else value_size
        for i, shape in enumerate(((queries, size), (keys, size), (keys, value_size))):
            a.data(i, (batch, shape[0], heads * shape[1]))
    elif all(a.known(i) for i in (0, 1, 2)):
        widths = [a.shape(i)[-1] for i in (0, 1, 2)]
        heads = a.pick("heads", [h for h in _HEADS if all(width % h == 0 for width in widths)])
    else:
        raise DeadEnd("queries, keys and values come together")
    q, k, v = (a.shape(i) for i in (0, 1, 2))
    if len(q) != 3 or q[0] != k[0] or k[:2] != v[:2] or q[2] != k[2]:
        raise DeadEnd("queries, keys and values don't fit")
    a.attr("num_heads", (heads,))
    a.attr("scale", (None, 0.5, 1.0))
    a.attr("unidirectional", (None, 1), (3, 1))
    if a.optional(3):
        a.data(3, (q[2] + k[2] + v[2],))
    if a.optional(5):
        _mask(a, 5, (q[0], heads, q[1], k[1]))


ATTENTION_PROPOSALS: Mapping[tuple[str, str], Proposal] = {
    ("", "Attention"): propose_attention,
    ("com.microsoft", "MultiHeadAttention"): propose_multi_head,
}
