"""ConvNeXt: depthwise 7x7 convolutions, each before a feed-forward network over the channels."""

from __future__ import annotations

from torch import Tensor, nn

from graph_rewrite.zoo.architectures.layers import FeedForward, pooled
from graph_rewrite.zoo.architectures.weights import Learned
from graph_rewrite.zoo.further.configs import ConvNextConfig

_LAYER_NORM_EPS = 1e-6
_EXPANSION = 4


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of [batch, channels, height, width]."""

    def __init__(self, width: int) -> None:
        super().__init__(width, eps=_LAYER_NORM_EPS)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class ConvNextBlock(nn.Module):
    """Depthwise 7x7 convolution, LayerNorm, and a feed-forward network with scaled channels; added to the input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=_LAYER_NORM_EPS)
        self.feed_forward = FeedForward(width, _EXPANSION * width, nn.GELU())
        self.scale = Learned(width, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.feed_forward(self.norm(self.convolution(x).permute(0, 2, 3, 1))).permute(0, 3, 1, 2)
        scaled: Tensor = self.scale() * y
        return x + scaled


class ConvNext(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: ConvNextConfig) -> None:
        super().__init__()
        width = config.width
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, stride=4), ChannelNorm(width)]
        for stage, count in enumerate(config.stages):
            if stage:
                layers += [ChannelNorm(width), nn.Conv2d(width, 2 * width, 2, stride=2)]
                width *= 2
            layers += [ConvNextBlock(width) for _ in range(count)]
        self.features = nn.Sequential(*layers)
        self.norm = nn.LayerNorm(width, eps=_LAYER_NORM_EPS)
        self.classifier = nn.Linear(width, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.norm(pooled(self.features(pixel_values))))
        return logits
