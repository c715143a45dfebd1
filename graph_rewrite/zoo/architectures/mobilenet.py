"""MobileNetV2: inverted residuals with linear bottlenecks."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD, ConvNorm, pooled
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.images import MobileNetV2Config, channels

_STEM_CHANNELS, _LAST_CHANNELS = 32, 1280
# Table 2 of the paper: expansion, channels, blocks, stride of the first block.
_STAGES = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_conv = partial(ConvNorm, activation=nn.ReLU6)


class InvertedResidual(nn.Module):
    """1x1 convolution that expands, depthwise 3x3 and linear 1x1; added to the input where the shape stays."""

    def __init__(self, width: int, out_width: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width * expansion
        self.residual = stride == 1 and width == out_width
        layers = [_conv(width, inner)] if expansion > 1 else []
        layers.append(_conv(inner, inner, 3, stride=stride, padding=1, groups=inner))
        layers.append(ConvNorm(inner, out_width, activation=None))
        if self.residual:
            scaled(layers[-1][1], RESIDUAL_STD)
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class MobileNetV2(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: MobileNetV2Config) -> None:
        super().__init__()
        width = channels(_STEM_CHANNELS, config.width_percent)
        layers: list[nn.Module] = [_conv(3, width, 3, stride=2, padding=1)]
        for expansion, published, count, stride in _STAGES:
            out_width = channels(published, config.width_percent)
            for block in range(min(count, config.repeats)):
                layers.append(InvertedResidual(width, out_width, stride if block == 0 else 1, expansion))
                width = out_width
        last = channels(_LAST_CHANNELS, max(100, config.width_percent))  # the paper never narrows the last layer
        layers.append(_conv(width, last))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(last, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
