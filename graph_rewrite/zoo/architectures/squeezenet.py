"""SqueezeNet 1.1: Fire modules, no BatchNorm."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.configs.images import SqueezeNetConfig


class Fire(nn.Module):
    """A 1x1 convolution to ``squeeze`` channels, then 1x1 and 3x3 convolutions side by side, concatenated."""

    def __init__(self, channels: int, squeeze: int, expand: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, kernel_size=1)
        self.expand1x1 = nn.Conv2d(squeeze, expand, kernel_size=1)
        self.expand3x3 = nn.Conv2d(squeeze, expand, kernel_size=3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        squeezed = F.relu(self.squeeze(x))
        return torch.cat((F.relu(self.expand1x1(squeezed)), F.relu(self.expand3x3(squeezed))), dim=1)


class SqueezeNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: SqueezeNetConfig) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 64, kernel_size=3, stride=2),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            Fire(64, squeeze=16, expand=64),
            Fire(128, squeeze=16, expand=64),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            Fire(128, squeeze=32, expand=128),
            Fire(256, squeeze=32, expand=128),
            nn.MaxPool2d(kernel_size=3, stride=2, ceil_mode=True),
            Fire(256, squeeze=48, expand=192),
            Fire(384, squeeze=48, expand=192),
            Fire(384, squeeze=64, expand=256),
            Fire(512, squeeze=64, expand=256),
        )
        self.classifier = nn.Conv2d(512, config.classes, kernel_size=1)

    def forward(self, pixel_values: Tensor) -> Tensor:
        scores = F.relu(self.classifier(self.features(pixel_values)))
        return F.adaptive_avg_pool2d(scores, 1).flatten(start_dim=1)
