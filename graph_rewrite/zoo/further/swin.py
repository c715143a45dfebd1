"""Swin Transformer: attention inside windows, which are shifted in every second block."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import ATTENTION_STD, FeedForward, merge_heads
from graph_rewrite.zoo.architectures.weights import Learned, scaled
from graph_rewrite.zoo.further.configs import SwinConfig

_PATCH = 4
_MASKED = -100.0  # added to the scores of two positions that are no neighbours in the image


def windows(x: Tensor, size: int) -> Tensor:
    """[batch, height, width, channels] -> [batch * windows, size * size, channels]."""
    batch, height, width, channels = x.shape
    tiles = x.view(batch, height // size, size, width // size, size, channels).transpose(2, 3)
    return tiles.reshape(-1, size * size, channels)


def from_windows(x: Tensor, size: int, height: int, width: int) -> Tensor:
    """Undo ``windows``: -> [batch, height, width, channels]."""
    tiles = x.view(-1, height // size, width // size, size, size, x.shape[-1]).transpose(2, 3)
    return tiles.reshape(-1, height, width, x.shape[-1])


def shift_mask(side: int, size: int, shift: int) -> Tensor:
    """Return what is added to the scores of shifted windows, float32 [windows, 1, size * size, size * size]."""
    borders = (torch.arange(side) >= side - size).int() + (torch.arange(side) >= side - shift).int()
    parts = windows((3 * borders[:, None] + borders).view(1, side, side, 1).float(), size).squeeze(-1)
    return ((parts[:, :, None] != parts[:, None, :]).float() * _MASKED)[:, None]


def relative_positions(size: int) -> Tensor:
    """The entry of the table of biases for every pair of positions in a window, int64 [size**4]."""
    row, column = torch.arange(size).repeat_interleave(size), torch.arange(size).repeat(size)
    rows, columns = (at[:, None] - at[None, :] + size - 1 for at in (row, column))
    return (rows * (2 * size - 1) + columns).flatten()


class WindowAttention(nn.Module):
    """Self-attention inside windows: [batch, side, side, channels] -> the same shape."""

    def __init__(self, channels: int, heads: int, side: int, size: int, shifted: bool) -> None:
        super().__init__()
        self.heads, self.size = heads, size
        self.shift = size // 2 if shifted and side > size else 0
        self.projections = nn.Linear(channels, 3 * channels)
        self.bias = Learned((2 * size - 1) ** 2, heads)
        self.output = scaled(nn.Linear(channels, channels), ATTENTION_STD)
        self.register_buffer("pairs", relative_positions(size), persistent=False)
        if self.shift:
            self.register_buffer("mask", shift_mask(side, size, self.shift), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, side, _, channels = x.shape
        if self.shift:
            x = torch.roll(x, (-self.shift, -self.shift), (1, 2))
        inside = windows(x, self.size)
        tokens = self.size**2
        split = self.projections(inside).view(len(inside), tokens, 3, self.heads, channels // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        bias = self.bias()[self.get_buffer("pairs")].view(tokens, tokens, self.heads).permute(2, 0, 1).contiguous()
        scores = torch.matmul(query * query.shape[-1] ** -0.5, key.transpose(-2, -1)) + bias
        if self.shift:
            mask = self.get_buffer("mask")
            scores = scores.view(batch, len(mask), self.heads, tokens, tokens) + mask
            scores = scores.view(-1, self.heads, tokens, tokens)
        attended = self.output(merge_heads(torch.matmul(F.softmax(scores, dim=-1), value)))
        x = from_windows(attended, self.size, side, side)
        return torch.roll(x, (self.shift, self.shift), (1, 2)) if self.shift else x


class SwinBlock(nn.Module):
    """LayerNorm before attention and before the feed-forward network, each with a residual connection."""

    def __init__(self, channels: int, heads: int, side: int, shifted: bool, config: SwinConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(channels)
        self.attention = WindowAttention(channels, heads, side, config.window, shifted)
        self.feed_forward_norm = nn.LayerNorm(channels)
        self.feed_forward = FeedForward(channels, config.mlp_ratio * channels, nn.GELU())

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        output: Tensor = x + self.feed_forward(self.feed_forward_norm(x))
        return output


class PatchMerging(nn.Module):
    """Four neighbours become one position of twice the channels."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4 * channels)
        self.reduction = nn.Linear(4 * channels, 2 * channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        parts = [x[:, row::2, column::2] for column in (0, 1) for row in (0, 1)]
        output: Tensor = self.reduction(self.norm(torch.cat(parts, dim=-1)))
        return output


class Swin(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: SwinConfig) -> None:
        super().__init__()
        channels, heads, side = config.hidden, config.heads, config.image_size // _PATCH
        self.patches = nn.Conv2d(3, channels, kernel_size=_PATCH, stride=_PATCH)
        self.patch_norm = nn.LayerNorm(channels)
        layers: list[nn.Module] = []
        for stage, count in enumerate(config.stages):
            if stage:
                layers.append(PatchMerging(channels))
                channels, heads, side = 2 * channels, 2 * heads, side // 2
            layers += [SwinBlock(channels, heads, side, block % 2 == 1, config) for block in range(count)]
        self.layers = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(channels)
        self.classifier = nn.Linear(channels, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        hidden = self.norm(self.layers(self.patch_norm(self.patches(pixel_values).permute(0, 2, 3, 1))))
        logits: Tensor = self.classifier(hidden.mean(dim=(1, 2)))
        return logits
