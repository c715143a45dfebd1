"""Functions over numpy arrays that several operators compute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def erf(x: Array) -> Array:
    """Return the error function, element by element."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x) if x.size else x


def sigmoid(x: Array) -> Array:
    """Return the logistic function without overflow."""
    result: Array = 0.5 * (1.0 + np.tanh(0.5 * x))
    return result


def gelu(x: Array) -> Array:
    """Return x times the distribution function of the normal distribution at x."""
    result: Array = x * 0.5 * (1.0 + erf(x / math.sqrt(2.0)))
    return result


def gelu_by_tanh(x: Array) -> Array:
    """Return the usual approximation of `gelu` by tanh."""
    result: Array = 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    return result


def layer_norm(x: Array, scale: Array, bias: Array | None, epsilon: float, axis: int = -1) -> Array:
    """Apply LayerNormalization over the axes from `axis` on."""
    axes = tuple(range(axis % x.ndim, x.ndim))
    centred = x - x.mean(axis=axes, keepdims=True)
    result: Array = centred / np.sqrt((centred * centred).mean(axis=axes, keepdims=True) + epsilon) * scale
    return result if bias is None else result + bias


def split_heads(x: Array, heads: int) -> Array:
    """Reshape [batch, length, hidden] to [batch, heads, length, hidden / heads]."""
    batch, length, hidden = x.shape
    return x.reshape(batch, length, heads, hidden // heads).transpose(0, 2, 1, 3)


def merge_heads(x: Array) -> Array:
    """Reshape [batch, heads, length, size] to [batch, length, heads * size]."""
    batch, heads, length, size = x.shape
    return x.transpose(0, 2, 1, 3).reshape(batch, length, heads * size)


def softmax(x: Array, axis: int = -1) -> Array:
    """Apply Softmax along one axis."""
    if not x.size:
        return x
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    result: Array = weights / weights.sum(axis=axis, keepdims=True)
    return result


def attention(
    query: Array, key: Array, value: Array, bias: Array | None, scale: float | None, causal: bool, softcap: float = 0.0
) -> Array:
    """Return softmax(scale * query key^T + bias) value over [batch, heads, length, size]; `scale` is 1/sqrt(size) by
    default.

    With `causal`, query i sees keys 0 to i. A query that sees no key at all gives zeros, as ONNX's `Attention` has it.
    """
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = query @ np.swapaxes(key, -1, -2) * scale
    scores = np.tanh(scores / softcap) * softcap if softcap else scores
    scores = scores if bias is None else scores + bias
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    blind = np.isneginf(scores).all(axis=-1, keepdims=True)
    weights = np.where(blind, 0.0, softmax(np.where(blind, 0.0, scores)))
    result: Array = (weights @ value).astype(query.dtype)
    return result
