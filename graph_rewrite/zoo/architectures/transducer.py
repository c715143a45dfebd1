"""Transformer Transducer: encoders of audio and of labels, and a joint network over every pair of frame and label."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import CausalMask, FeedForward, SelfAttention, Sinusoids
from graph_rewrite.zoo.configs.sequences import TransducerConfig


class EncoderLayer(nn.Module):
    """Attention and feed-forward network. Residual connections carry the normalised input, as the paper writes them."""

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden)
        self.attention = SelfAttention(config.hidden, config.heads)
        self.feed_forward_norm = nn.LayerNorm(config.hidden)
        self.feed_forward = FeedForward(config.hidden, config.mlp_ratio * config.hidden, nn.ReLU())

    def forward(self, hidden: Tensor, additive_mask: Tensor | None) -> Tensor:
        hidden = self.attention_norm(hidden)
        hidden = self.attention(hidden, additive_mask) + hidden
        hidden = self.feed_forward_norm(hidden)
        output: Tensor = self.feed_forward(hidden) + hidden
        return output


class Joint(nn.Module):
    """[batch, frames, hidden] and [batch, labels, hidden] -> [batch, frames, labels, vocab]."""

    def __init__(self, hidden: int, vocab: int) -> None:
        super().__init__()
        self.audio = nn.Linear(hidden, hidden)
        self.label = nn.Linear(hidden, hidden)
        self.output = nn.Linear(hidden, vocab)

    def forward(self, audio: Tensor, labels: Tensor) -> Tensor:
        pairs = self.audio(audio).unsqueeze(2) + self.label(labels).unsqueeze(1)
        output: Tensor = self.output(torch.tanh(pairs))
        return output


class TransformerTransducer(nn.Module):
    """``audio_features`` [batch, frames, hidden], ``label_ids`` [batch, labels] -> ``logits``, one row per pair."""

    def __init__(self, config: TransducerConfig) -> None:
        super().__init__()
        self.audio_positions = Sinusoids(config.seq_len, config.hidden)
        self.audio_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.labels = nn.Embedding(config.vocab, config.hidden)
        self.label_positions = Sinusoids(config.labels, config.hidden)
        self.mask = CausalMask(config.labels)
        self.label_layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.label_layers))
        self.joint = Joint(config.hidden, config.vocab)

    def forward(self, audio_features: Tensor, label_ids: Tensor) -> Tensor:
        audio = self.audio_positions(audio_features)
        for layer in self.audio_layers:
            audio = layer(audio, None)
        labels = self.label_positions(self.labels(label_ids))
        mask = self.mask(labels)
        for layer in self.label_layers:
            labels = layer(labels, mask)
        output: Tensor = self.joint(audio, labels)
        return output
