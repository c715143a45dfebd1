"""DALL-E's decoder at the size of GPT-2: causal attention, one projection for query, key and value."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import (
    ATTENTION_STD,
    CausalMask,
    FeedForward,
    attend,
    merge_heads,
    split_heads,
)
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.sequences import DalleConfig


class CausalSelfAttention(nn.Module):
    """Multi-head self-attention without the residual connection: [batch, seq, hidden] -> the same shape."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.projection = nn.Linear(hidden, 3 * hidden)
        self.output = scaled(nn.Linear(hidden, hidden), ATTENTION_STD)

    def forward(self, hidden: Tensor, additive_mask: Tensor) -> Tensor:
        query, key, value = (split_heads(part, self.heads) for part in self.projection(hidden).chunk(3, dim=-1))
        output: Tensor = self.output(merge_heads(attend(query, key, value, additive_mask)))
        return output


class DecoderLayer(nn.Module):
    """LayerNorm before attention and before the feed-forward network, each with a residual connection."""

    def __init__(self, config: DalleConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = CausalSelfAttention(config.hidden, config.heads)
        self.feed_forward_norm = nn.LayerNorm(config.hidden)
        gelu = nn.GELU(approximate="tanh")
        self.feed_forward = FeedForward(config.hidden, config.mlp_ratio * config.hidden, gelu)

    def forward(self, hidden: Tensor, additive_mask: Tensor) -> Tensor:
        hidden = self.attention(self.attention_norm(hidden), additive_mask) + hidden
        output: Tensor = self.feed_forward(self.feed_forward_norm(hidden)) + hidden
        return output


class Dalle(nn.Module):
    """``input_ids`` int64 [batch, seq] -> ``logits`` float32 [batch, seq, vocab]."""

    def __init__(self, config: DalleConfig) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab, config.hidden)
        self.positions = nn.Embedding(config.positions, config.hidden)
        self.mask = CausalMask(config.seq_len)
        self.layers = nn.ModuleList(DecoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden)
        self.head = nn.Linear(config.hidden, config.vocab, bias=False)

    def forward(self, input_ids: Tensor) -> Tensor:
        positions = torch.arange(input_ids.shape[1]).unsqueeze(0)
        hidden = self.tokens(input_ids) + self.positions(positions)
        mask = self.mask(hidden)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        logits: Tensor = self.head(self.norm(hidden))
        return logits
