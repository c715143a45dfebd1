"""Attention over a domain: ONNX's operator of opset 23, and com.microsoft's MultiHeadAttention."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from onnx import TensorProto

from graph_rewrite.operators.functions import merge_heads, split_heads
from graph_rewrite.soundness.domains.domain import Array, Unsupported
from graph_rewrite.soundness.semantics.algebra import product
from graph_rewrite.soundness.semantics.call import Call
from graph_rewrite.soundness.semantics.reductions import divide
from graph_rewrite.soundness.semantics.softmax import softmax_over


def _mask(call: Call, keys: int) -> Array | None:
    """The mask as numbers to be added to the scores, padded by minus infinity up to the number of keys."""
    if not call.has(3):
        return None
    tensor, hidden = call.inputs[3], call.domain.array([call.domain.literal(float("-inf"))], ())
    assert tensor is not None
    mask = call.array(3) if tensor.dtype != TensorProto.BOOL else call.condition(3)
    if tensor.dtype == TensorProto.BOOL:
        zero = call.rational(0)
        mask = call.domain.select(mask, np.broadcast_to(zero, mask.shape), np.broadcast_to(hidden, mask.shape))
    missing = keys - mask.shape[-1]
    if missing > 0:
        mask = np.concatenate([mask, np.broadcast_to(hidden, (*mask.shape[:-1], missing))], axis=-1)
    return np.asarray(mask)


def _attend(
    call: Call, query: Array, key: Array, value: Array, mask: Array | None, scale: Array, causal: bool
) -> Array:
    """softmax(scale * query key^T + mask) value over [batch, heads, length, size]; zeros for a query without keys."""
    domain = call.domain
    scores = domain.mul(product(call, query, np.swapaxes(key, -1, -2)), scale)
    cap = float(call.attrs.get("softcap", 0.0))
    if cap:
        number = call.number(cap)
        scores = domain.mul(domain.function("Tanh", [divide(domain, scores, number)]), number)
    scores = scores if mask is None else domain.add(scores, mask)
    hidden = np.broadcast_to(domain.array([domain.literal(float("-inf"))], ()), scores.shape)
    if causal:
        scores = np.where(np.broadcast_to(np.tri(*scores.shape[-2:], dtype=np.bool_), scores.shape), scores, hidden)
    zeros = np.broadcast_to(call.rational(0), scores.shape)
    blind = np.broadcast_to((domain.infinite(scores) < 0).all(axis=-1, keepdims=True), scores.shape)
    weights = softmax_over(call, np.where(blind, zeros, scores), -1)
    return product(call, np.where(blind, zeros, weights), value)


def attention(call: Call) -> Array:
    """The operator Attention without a cache, heads an axis of their own or packed."""
    if call.outputs > 1 or len(call.inputs) > 4:
        raise Unsupported("Attention with a cache")
    query, key, value = (call.array(i) for i in range(3))
    packed = query.ndim == 3
    if packed:
        query = split_heads(query, call.attrs["q_num_heads"])
        key, value = (split_heads(x, call.attrs["kv_num_heads"]) for x in (key, value))
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = np.repeat(key, groups, axis=1), np.repeat(value, groups, axis=1)
    given = call.attrs.get("scale")
    scale = call.root(Fraction(1, query.shape[-1])) if given is None else call.number(float(given))
    causal = bool(call.attrs.get("is_causal", 0))
    result = _attend(call, query, key, value, _mask(call, key.shape[2]), scale, causal)
    return merge_heads(result) if packed else result


def multi_head_attention(call: Call) -> Array:
    """com.microsoft's MultiHeadAttention over packed heads, without a cache or a key padding mask."""
    if call.outputs > 1 or call.has(4) or len(call.inputs) > 6:
        raise Unsupported("MultiHeadAttention with a cache or a key padding mask")
    heads, parts = call.attrs["num_heads"], [call.array(i) for i in range(3)]
    bias, added = call.maybe(3), call.maybe(5)
    if bias is not None:
        hidden = parts[0].shape[-1]
        biases = np.split(bias, [hidden, 2 * hidden])
        parts = [call.domain.add(part, b) for part, b in zip(parts, biases, strict=True)]
    query, key, value = (split_heads(part, heads) for part in parts)
    given = float(call.attrs.get("scale", 0.0))
    scale = call.number(given) if given else call.root(Fraction(1, query.shape[-1]))
    causal = bool(call.attrs.get("unidirectional", 0))
    return merge_heads(_attend(call, query, key, value, added, scale, causal))
