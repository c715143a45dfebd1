"""ResNet with basic blocks, over images (ResNet-18) and over video clips (R3D-18)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.images import ResNet3dConfig, ResNetConfig


class BasicBlock(nn.Module):
    """Two convolutions of size 3 in every dimension, each with BatchNorm, added to the shortcut; the first strides.

    The shortcut is a convolution of size 1 where the shape changes and the identity elsewhere.
    """

    def __init__(self, dims: int, channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        conv, norm = _layers(dims)
        self.conv1 = conv(channels, out_channels, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn1 = norm(out_channels)
        self.conv2 = conv(out_channels, out_channels, kernel_size=3, padding=1, bias=False)
        self.bn2 = scaled(norm(out_channels), RESIDUAL_STD)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels != out_channels:
            projection = conv(channels, out_channels, kernel_size=1, stride=stride, bias=False)
            self.shortcut = nn.Sequential(projection, norm(out_channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


class ResNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes].

    With a configuration for video ``pixel_values`` is [batch, 3, frames, size, size].
    """

    def __init__(self, config: ResNetConfig) -> None:
        super().__init__()
        self.dims = 3 if isinstance(config, ResNet3dConfig) else 2
        self.stem = _stem3d(config.width) if self.dims == 3 else _stem2d(config.width)
        blocks: list[nn.Module] = []
        channels = config.width
        for stage, count in enumerate(config.stages):
            out_channels = config.width * 2**stage
            for block in range(count):
                blocks.append(BasicBlock(self.dims, channels, out_channels, 2 if stage > 0 and block == 0 else 1))
                channels = out_channels
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(channels, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        features = self.blocks(self.stem(pixel_values))
        pool = F.adaptive_avg_pool3d if self.dims == 3 else F.adaptive_avg_pool2d
        logits: Tensor = self.classifier(pool(features, 1).flatten(start_dim=1))
        return logits


def _layers(dims: int) -> tuple[type[nn.Conv2d] | type[nn.Conv3d], type[nn.BatchNorm2d] | type[nn.BatchNorm3d]]:
    return (nn.Conv3d, nn.BatchNorm3d) if dims == 3 else (nn.Conv2d, nn.BatchNorm2d)


def _stem2d(width: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, width, kernel_size=7, stride=2, padding=3, bias=False),
        nn.BatchNorm2d(width),
        nn.ReLU(),
        nn.MaxPool2d(kernel_size=3, stride=2, padding=1),
    )


def _stem3d(width: int) -> nn.Sequential:
    """Keeps the frames and does not pool."""
    return nn.Sequential(
        nn.Conv3d(3, width, kernel_size=(3, 7, 7), stride=(1, 2, 2), padding=(1, 3, 3), bias=False),
        nn.BatchNorm3d(width),
        nn.ReLU(),
    )
