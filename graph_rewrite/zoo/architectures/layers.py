"""Layers that several architectures share."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.weights import scaled

# Standard deviations of the residual branches. With 1 the tokens of BERT-base have a cosine similarity of 0.998 in the
# last layer and every softmax is uniform; with these it is 0.7.
ATTENTION_STD = 0.3
FEED_FORWARD_STD = 0.5
# In convolutional networks: with branches as large as the shortcut, float32 rounding errors grow to 1e-5 of the logits;
# with these to 1e-6.
RESIDUAL_STD = 0.3
# Mean of the outputs of layers before ReLU where there are no shortcuts: with 0 errors grow to 5e-5 of the logits.
SHIFT = 1.0


class SelfAttention(nn.Module):
    """Multi-head self-attention without the residual connection: [batch, seq, hidden] -> the same shape.

    In the form that Hugging Face's eager attention gives: MatMul, scale, mask, Softmax, MatMul.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = hidden // heads
        self.query = nn.Linear(hidden, hidden)
        self.key = nn.Linear(hidden, hidden)
        self.value = nn.Linear(hidden, hidden)
        self.output = scaled(nn.Linear(hidden, hidden), ATTENTION_STD)

    def forward(self, hidden: Tensor, additive_mask: Tensor | None = None) -> Tensor:
        query, key, value = (self._split_heads(layer(hidden)) for layer in (self.query, self.key, self.value))
        output: Tensor = self.output(merge_heads(attend(query, key, value, additive_mask)))
        return output

    def _split_heads(self, projected: Tensor) -> Tensor:
        return split_heads(projected, self.heads)


class FeedForward(nn.Sequential):
    """Two layers with an activation between them, [..., hidden] -> the same shape; the residual is the caller's."""

    def __init__(self, hidden: int, inner: int, activation: nn.Module) -> None:
        super().__init__(nn.Linear(hidden, inner), activation, scaled(nn.Linear(inner, hidden), FEED_FORWARD_STD))


def attend(query: Tensor, key: Tensor, value: Tensor, additive_mask: Tensor | None) -> Tensor:
    """Scaled dot-product attention over [batch, heads, seq, head_size]."""
    scores = torch.matmul(query, key.transpose(2, 3)) * query.shape[-1] ** -0.5
    if additive_mask is not None:
        scores = scores + additive_mask
    return torch.matmul(F.softmax(scores, dim=-1), value)


def split_heads(projected: Tensor, heads: int) -> Tensor:
    """[batch, seq, hidden] -> [batch, heads, seq, head_size]."""
    batch, seq_len, hidden = projected.shape
    return projected.view(batch, seq_len, heads, hidden // heads).transpose(1, 2)


def merge_heads(context: Tensor) -> Tensor:
    """[batch, heads, seq, head_size] -> [batch, seq, hidden]."""
    batch, heads, seq_len, head_size = context.shape
    return context.transpose(1, 2).reshape(batch, seq_len, heads * head_size)


def causal_mask(seq_len: int, dtype: torch.dtype) -> Tensor:
    """[seq_len, seq_len]: 0 up to the diagonal, the dtype's most negative number above; added to attention scores."""
    return torch.full((seq_len, seq_len), torch.finfo(dtype).min, dtype=dtype).triu(1)


def sinusoids(length: int, hidden: int) -> Tensor:
    """Positions as sines and cosines, float32 [length, hidden] (Vaswani et al. 2017, arXiv:1706.03762, section 3.5)."""
    rates = torch.exp(torch.arange(0, hidden, 2, dtype=torch.float64) * (-math.log(10000.0) / hidden))
    angles = torch.arange(length, dtype=torch.float64)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(start_dim=1).float()


class CausalMask(nn.Module):
    """``causal_mask`` of the configured length, as a constant of the exported graph; other lengths are computed."""

    def __init__(self, seq_len: int) -> None:
        super().__init__()
        self.register_buffer("mask", causal_mask(seq_len, torch.float32), persistent=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Mask for ``hidden`` [batch, seq, width], of its dtype."""
        mask: Tensor = self.get_buffer("mask")
        seq_len = hidden.shape[1]
        return mask if len(mask) == seq_len else causal_mask(seq_len, hidden.dtype)


class Sinusoids(nn.Module):
    """Adds ``sinusoids`` to [batch, seq, hidden]: a constant for the configured length, others are computed."""

    def __init__(self, seq_len: int, hidden: int) -> None:
        super().__init__()
        self.register_buffer("positions", sinusoids(seq_len, hidden), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        positions: Tensor = self.get_buffer("positions")
        _, seq_len, hidden = x.shape
        return x + (positions if len(positions) == seq_len else sinusoids(seq_len, hidden).to(x.dtype))


class ConvNorm(nn.Sequential):
    """Convolution without bias, BatchNorm, and ReLU unless ``activation`` is another or None."""

    def __init__(
        self,
        channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int] = 1,
        *,
        stride: int = 1,
        padding: int | tuple[int, int] = 0,
        groups: int = 1,
        eps: float = 1e-5,
        activation: type[nn.Module] | None = nn.ReLU,
    ) -> None:
        super().__init__(
            nn.Conv2d(channels, out_channels, kernel_size, stride, padding, groups=groups, bias=False),
            nn.BatchNorm2d(out_channels, eps=eps),
        )
        if activation is not None:
            self.append(activation())


def pooled(features: Tensor) -> Tensor:
    """Mean over all positions: [batch, channels, height, width] -> [batch, channels]."""
    return F.adaptive_avg_pool2d(features, 1).flatten(start_dim=1)
