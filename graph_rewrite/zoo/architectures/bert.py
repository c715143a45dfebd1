"""BERT's encoder in the form that Hugging Face's eager attention gives: MatMul, scale, mask, Softmax, MatMul."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import FEED_FORWARD_STD, SelfAttention
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.common import BertConfig

_LAYER_NORM_EPS = 1e-12  # of the published models


class Embeddings(nn.Module):
    """Sum of word, position and token type embeddings, normalised: [batch, seq] -> [batch, seq, hidden]."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.word = nn.Embedding(config.vocab, config.hidden)
        self.position = nn.Embedding(config.positions, config.hidden)
        self.token_type = nn.Embedding(config.token_types, config.hidden)
        self.norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None) -> Tensor:
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        positions = torch.arange(input_ids.shape[1]).unsqueeze(0)
        embeddings = self.word(input_ids) + self.token_type(token_type_ids) + self.position(positions)
        normalised: Tensor = self.norm(embeddings)
        return normalised


class EncoderLayer(nn.Module):
    """Attention and feed-forward network, each followed by residual connection and LayerNorm."""

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.attention = SelfAttention(config.hidden, config.heads)
        self.attention_norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)
        self.intermediate = nn.Linear(config.hidden, config.mlp_ratio * config.hidden)
        self.output = scaled(nn.Linear(config.mlp_ratio * config.hidden, config.hidden), FEED_FORWARD_STD)
        self.output_norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)

    def forward(self, hidden: Tensor, additive_mask: Tensor | None) -> Tensor:
        hidden = self.attention_norm(self.attention(hidden, additive_mask) + hidden)
        output: Tensor = self.output_norm(self.output(F.gelu(self.intermediate(hidden))) + hidden)
        return output


class Bert(nn.Module):
    """BERT without pooler: ``input_ids`` int64 [batch, seq] -> ``last_hidden_state`` float32 [batch, seq, hidden].

    As in Hugging Face's implementation an omitted ``attention_mask`` attends to all tokens (then no mask is added at
    all) and omitted ``token_type_ids`` are zeros. Both are int64 [batch, seq]; a zero in the mask hides its token.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__()
        self.embeddings = Embeddings(config)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None
    ) -> Tensor:
        hidden: Tensor = self.embeddings(input_ids, token_type_ids)
        additive_mask = None if attention_mask is None else _additive(attention_mask, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, additive_mask)
        return hidden


def _additive(attention_mask: Tensor, dtype: torch.dtype) -> Tensor:
    """[batch, seq] of ones and zeros -> [batch, 1, 1, seq] of zeros and the dtype's most negative number."""
    hidden_tokens = 1.0 - attention_mask[:, None, None, :].to(dtype)
    return hidden_tokens * torch.finfo(dtype).min
