"""DenseNet: every layer of a block reads the outputs of all layers before it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import pooled
from graph_rewrite.zoo.further.configs import DenseNetConfig

_BOTTLENECK = 4


class DenseLayer(nn.Sequential):
    """BatchNorm, ReLU, 1x1 convolution, BatchNorm, ReLU, 3x3 convolution: ``growth`` channels more."""

    def __init__(self, width: int, growth: int) -> None:
        inner = _BOTTLENECK * growth
        super().__init__(
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, growth, 3, padding=1, bias=False),
        )


class DenseBlock(nn.ModuleList):
    """Layers each of which reads the concatenation of the block's input and of all outputs before it."""

    def __init__(self, width: int, layers: int, growth: int) -> None:
        super().__init__(DenseLayer(width + layer * growth, growth) for layer in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        features = [x]
        for layer in self:
            features.append(layer(torch.cat(features, dim=1)))
        return torch.cat(features, dim=1)


class DenseNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: DenseNetConfig) -> None:
        super().__init__()
        width = 2 * config.growth
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        ]
        for block, count in enumerate(config.blocks):
            if block:
                halved = [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False)]
                layers += [*halved, nn.AvgPool2d(2, stride=2)]
                width //= 2
            layers.append(DenseBlock(width, count, config.growth))
            width += count * config.growth
        self.features = nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())
        self.classifier = nn.Linear(width, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
