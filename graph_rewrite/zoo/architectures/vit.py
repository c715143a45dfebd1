"""Vision Transformer: an encoder with pre-normalisation over patches and a class token."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import FeedForward, SelfAttention
from graph_rewrite.zoo.architectures.weights import Learned
from graph_rewrite.zoo.configs.images import VitConfig

_LAYER_NORM_EPS = 1e-6  # of the published models


class EncoderLayer(nn.Module):
    """LayerNorm before attention and before the feed-forward network, each with a residual connection."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)
        self.attention = SelfAttention(config.hidden, config.heads)
        self.feed_forward_norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)
        self.feed_forward = FeedForward(config.hidden, config.mlp_ratio * config.hidden, nn.GELU())

    def forward(self, hidden: Tensor) -> Tensor:
        hidden = self.attention(self.attention_norm(hidden)) + hidden
        output: Tensor = self.feed_forward(self.feed_forward_norm(hidden)) + hidden
        return output


class Vit(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, config.hidden, kernel_size=config.patch, stride=config.patch)
        self.class_token = Learned(1, 1, config.hidden)
        self.positions = Learned(1, config.tokens, config.hidden)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.hidden, eps=_LAYER_NORM_EPS)
        self.classifier = nn.Linear(config.hidden, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        patches = self.patches(pixel_values).flatten(start_dim=2).transpose(1, 2)
        class_token = self.class_token().expand(patches.shape[0], -1, -1)
        hidden = torch.cat((class_token, patches), dim=1) + self.positions()
        for layer in self.layers:
            hidden = layer(hidden)
        logits: Tensor = self.classifier(self.norm(hidden)[:, 0])
        return logits
