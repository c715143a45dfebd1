"""EfficientNet-B0: inverted residuals with SiLU and squeeze-and-excitation."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import ConvNorm, pooled
from graph_rewrite.zoo.configs.images import channels
from graph_rewrite.zoo.further.configs import EfficientNetConfig
from graph_rewrite.zoo.further.gated_blocks import ChannelGate, GatedInvertedResidual

_STEM_CHANNELS, _LAST_CHANNELS = 32, 1280
# Table 1 of the paper: expansion, kernel, stride of the first block, channels, blocks.
_STAGES = (
    (1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3), (6, 5, 2, 192, 4),
    (6, 3, 1, 320, 1),
)  # fmt: skip
_conv = partial(ConvNorm, activation=nn.SiLU)


class EfficientNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: EfficientNetConfig) -> None:
        super().__init__()
        width = channels(_STEM_CHANNELS, config.width_percent)
        layers: list[nn.Module] = [_conv(3, width, 3, stride=2, padding=1)]
        for expansion, kernel, stride, published, count in _STAGES:
            out_width = channels(published, config.width_percent)
            for block in range(min(count, config.repeats)):
                inner = width * expansion
                gate = ChannelGate(inner, max(1, width // 4), F.silu, F.sigmoid)
                layers.append(
                    GatedInvertedResidual(width, out_width, inner, kernel, 1 if block else stride, _conv, gate)
                )
                width = out_width
        last = channels(_LAST_CHANNELS, config.width_percent)
        layers.append(_conv(width, last))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(last, config.classes)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
