"""EfficientNet-B0: inverted residuals with SiLU and squeeze-and-excitation."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD, ConvNorm, pooled
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.images import channels
from graph_rewrite.zoo.further.configs import EfficientNetConfig

_STEM_CHANNELS, _LAST_CHANNELS = 32, 1280
# Table 1 of the paper: expansion, kernel, stride of the first block, channels, blocks.
_STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
_conv = partial(ConvNorm, activation=nn.SiLU)


class SigmoidGate(nn.Module):
    """Scales each channel by a function of the means of all (Hu et al. 2018, arXiv:1709.01507)."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(width, inner, 1)
        self.excite = scaled(nn.Conv2d(inner, width, 1), RESIDUAL_STD)  # means vary little: 1 would magnify errors

    def forward(self, x: Tensor) -> Tensor:
        mean = F.adaptive_avg_pool2d(x, 1)
        return F.sigmoid(self.excite(F.silu(self.squeeze(mean)))) * x


class EfficientNetBlock(nn.Module):
    """1x1 convolution that expands, depthwise one, scaled channels, linear 1x1; residual where the shape stays."""

    def __init__(self, width: int, out_width: int, kernel: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = width * expansion
        self.residual = stride == 1 and width == out_width
        layers: list[nn.Module] = [_conv(width, inner)] if expansion > 1 else []
        layers.append(_conv(inner, inner, kernel, stride=stride, padding=kernel // 2, groups=inner))
        layers.append(SigmoidGate(inner, max(1, width // 4)))
        projection = ConvNorm(inner, out_width, activation=None)
        if self.residual:
            scaled(projection[1], RESIDUAL_STD)
        self.layers = nn.Sequential(*layers, projection)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class EfficientNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: EfficientNetConfig) -> None:
        super().__init__()
        width = channels(_STEM_CHANNELS, config.width_percent)
        layers: list[nn.Module] = [_conv(3, width, 3, stride=2, padding=1)]
        for expansion, kernel, stride, published, count in _STAGES:
            out_width = channels(published, config.width_percent)
            for block in range(min(count, config.repeats)):
                layers.append(EfficientNetBlock(width, out_width, kernel, 1 if block else stride, expansion))
                width = out_width
        last = channels(_LAST_CHANNELS, config.width_percent)
        layers.append(_conv(width, last))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(last, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
