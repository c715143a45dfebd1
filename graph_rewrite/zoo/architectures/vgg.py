"""VGG-19, and CSRNet, which begins as VGG-16 does."""

from __future__ import annotations

from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import SHIFT
from graph_rewrite.zoo.architectures.weights import shifted
from graph_rewrite.zoo.configs.images import CsrNetConfig, VggConfig

_VGG19_BLOCKS = ((1, 2), (2, 2), (4, 4), (8, 4), (8, 4))  # channels in multiples of the width, convolutions
_CSRNET_BLOCKS = ((1, 2), (2, 2), (4, 3), (8, 3))
_CSRNET_DILATED = (8, 8, 8, 4, 2, 1)


class Vgg19(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: VggConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for multiple, count in _VGG19_BLOCKS:
            layers += _convolutions(channels, [multiple * config.width] * count)
            layers.append(nn.MaxPool2d(2))
            channels = multiple * config.width
        self.features = shifted(nn.Sequential(*layers), SHIFT)
        positions = (config.image_size // 2 ** len(_VGG19_BLOCKS)) ** 2
        self.classifier = nn.Sequential(
            nn.Linear(channels * positions, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.classes),
        )

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(pixel_values).flatten(start_dim=1))
        return logits


class CsrNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``density`` float32 [batch, classes, size / 8, size / 8]."""

    def __init__(self, config: CsrNetConfig) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for block, (multiple, count) in enumerate(_CSRNET_BLOCKS):
            if block:
                layers.append(nn.MaxPool2d(2))
            layers += _convolutions(channels, [multiple * config.width] * count)
            channels = multiple * config.width
        self.front = shifted(nn.Sequential(*layers), SHIFT)
        dilated = [multiple * config.width for multiple in _CSRNET_DILATED]
        self.back = shifted(nn.Sequential(*_convolutions(channels, dilated, dilation=2)), SHIFT)
        self.output = nn.Conv2d(dilated[-1], config.classes, kernel_size=1)

    def forward(self, pixel_values: Tensor) -> Tensor:
        density: Tensor = self.output(self.back(self.front(pixel_values)))
        return density


def _convolutions(channels: int, widths: list[int], dilation: int = 1) -> list[nn.Module]:
    """3x3 convolutions with bias and ReLU that keep height and width."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [nn.Conv2d(channels, width, kernel_size=3, padding=dilation, dilation=dilation), nn.ReLU()]
        channels = width
    return layers
