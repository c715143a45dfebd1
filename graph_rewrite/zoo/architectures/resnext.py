"""ResNeXt: residual bottlenecks whose 3x3 convolution is split into groups; with one group, ResNet-50."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.images import ResNeXtConfig

_STEM_CHANNELS = 64
_EXPANSION = 4  # a block's output has so many times the channels of its stage's nominal width


class Bottleneck(nn.Module):
    """1x1, grouped 3x3 (which strides) and 1x1 convolution, each with BatchNorm, added to the shortcut.

    The shortcut is a 1x1 convolution where the shape changes and the identity elsewhere.
    """

    def __init__(self, channels: int, inner: int, out_channels: int, stride: int, groups: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, inner, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(inner)
        self.conv2 = nn.Conv2d(inner, inner, kernel_size=3, stride=stride, padding=1, groups=groups, bias=False)
        self.bn2 = nn.BatchNorm2d(inner)
        self.conv3 = nn.Conv2d(inner, out_channels, kernel_size=1, bias=False)
        self.bn3 = scaled(nn.BatchNorm2d(out_channels), RESIDUAL_STD)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out_channels:
            projection = nn.Conv2d(channels, out_channels, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, nn.BatchNorm2d(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        y = F.relu(self.bn2(self.conv2(y)))
        return F.relu(self.bn3(self.conv3(y)) + self.shortcut(x))


class ResNeXt(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: ResNeXtConfig) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, _STEM_CHANNELS, kernel_size=7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(_STEM_CHANNELS),
            nn.ReLU(),
            nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
        )
        blocks: list[nn.Module] = []
        channels = _STEM_CHANNELS
        for stage, count in enumerate(config.stages):
            inner = config.groups * config.width_per_group * 2**stage
            out_channels = _EXPANSION * _STEM_CHANNELS * 2**stage
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                blocks.append(Bottleneck(channels, inner, out_channels, stride, config.groups))
                channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        features = self.blocks(self.stem(pixel_values))
        logits: Tensor = self.classifier(F.adaptive_avg_pool2d(features, 1).flatten(start_dim=1))
        return logits
