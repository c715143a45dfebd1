"""MobileNetV3-Large: inverted residuals, some of which scale their channels by squeeze-and-excitation."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import ConvNorm, pooled
from graph_rewrite.zoo.configs.images import channels
from graph_rewrite.zoo.further.configs import MobileNetV3Config
from graph_rewrite.zoo.further.gated_blocks import ChannelGate, GatedInvertedResidual

_STEM_CHANNELS, _LAST_CHANNELS, _LAST_EXPANSION = 16, 1280, 6
_conv = partial(ConvNorm, eps=1e-3)
# Table 1 of the paper: kernel, inner channels, channels, squeeze-and-excitation, HardSwish (else ReLU), stride.
_BLOCKS = (
    (3, 16, 16, False, False, 1), (3, 64, 24, False, False, 2), (3, 72, 24, False, False, 1),
    (5, 72, 40, True, False, 2), (5, 120, 40, True, False, 1), (5, 120, 40, True, False, 1),
    (3, 240, 80, False, True, 2), (3, 200, 80, False, True, 1), (3, 184, 80, False, True, 1),
    (3, 184, 80, False, True, 1), (3, 480, 112, True, True, 1), (3, 672, 112, True, True, 1),
    (5, 672, 160, True, True, 2), (5, 960, 160, True, True, 1), (5, 960, 160, True, True, 1),
)  # fmt: skip


def divisible(count: float) -> int:
    """The multiple of 8 nearest to ``count`` that is at most a tenth below it, and at least 8."""
    found = max(8, int(count + 4) // 8 * 8)
    return found + 8 if found < 0.9 * count else found


class MobileNetV3(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: MobileNetV3Config) -> None:
        super().__init__()
        width = channels(_STEM_CHANNELS, config.width_percent)
        layers: list[nn.Module] = [_conv(3, width, 3, stride=2, padding=1, activation=nn.Hardswish)]
        for kernel, inner, published, squeezes, swish, stride in _BLOCKS[: config.blocks]:
            out_width = channels(published, config.width_percent)
            inner_width = channels(inner, config.width_percent)
            conv = partial(_conv, activation=nn.Hardswish if swish else nn.ReLU)
            gate = None
            if squeezes:
                gate = ChannelGate(inner_width, divisible(inner_width / 4), F.relu, F.hardsigmoid)
            layers.append(GatedInvertedResidual(width, out_width, inner_width, kernel, stride, conv, gate))
            width = out_width
        last = _LAST_EXPANSION * width
        layers.append(_conv(width, last, activation=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        hidden = channels(_LAST_CHANNELS, config.width_percent)
        self.classifier = nn.Sequential(nn.Linear(last, hidden), nn.Hardswish(), nn.Linear(hidden, config.classes))

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
