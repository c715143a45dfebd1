"""MobileNetV3-Large: inverted residuals, some of which scale their channels by squeeze-and-excitation."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD, ConvNorm, pooled
from graph_rewrite.zoo.architectures.weights import scaled
from graph_rewrite.zoo.configs.images import channels
from graph_rewrite.zoo.further.configs import MobileNetV3Config

_STEM_CHANNELS, _LAST_CHANNELS, _LAST_EXPANSION = 16, 1280, 6
_EPS = 1e-3
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


class HardSigmoidGate(nn.Module):
    """Scales each channel by a function of the means of all (Hu et al. 2018, arXiv:1709.01507)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        inner = divisible(width / 4)
        self.squeeze = nn.Conv2d(width, inner, 1)
        self.excite = scaled(nn.Conv2d(inner, width, 1), RESIDUAL_STD)  # means vary little: 1 would magnify errors

    def forward(self, x: Tensor) -> Tensor:
        mean = F.adaptive_avg_pool2d(x, 1)
        return F.hardsigmoid(self.excite(F.relu(self.squeeze(mean)))) * x


class MobileNetV3Block(nn.Module):
    """1x1 convolution that expands, depthwise one, scaled channels, linear 1x1; residual where the shape stays."""

    def __init__(
        self,
        width: int,
        out_width: int,
        kernel: int,
        inner: int,
        squeezes: bool,
        activation: type[nn.Module],
        stride: int,
    ) -> None:
        super().__init__()
        self.residual = stride == 1 and width == out_width
        layers: list[nn.Module] = []
        if inner != width:
            layers.append(ConvNorm(width, inner, eps=_EPS, activation=activation))
        depthwise = ConvNorm(
            inner, inner, kernel, stride=stride, padding=kernel // 2, groups=inner, eps=_EPS, activation=activation
        )
        layers.append(depthwise)
        if squeezes:
            layers.append(HardSigmoidGate(inner))
        projection = ConvNorm(inner, out_width, eps=_EPS, activation=None)
        if self.residual:
            scaled(projection[1], RESIDUAL_STD)
        self.layers = nn.Sequential(*layers, projection)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y


class MobileNetV3(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: MobileNetV3Config) -> None:
        super().__init__()
        width = channels(_STEM_CHANNELS, config.width_percent)
        layers: list[nn.Module] = [ConvNorm(3, width, 3, stride=2, padding=1, eps=_EPS, activation=nn.Hardswish)]
        for kernel, inner, published, squeezes, swish, stride in _BLOCKS[: config.blocks]:
            out_width = channels(published, config.width_percent)
            inner_width = channels(inner, config.width_percent)
            activation = nn.Hardswish if swish else nn.ReLU
            layers.append(MobileNetV3Block(width, out_width, kernel, inner_width, squeezes, activation, stride))
            width = out_width
        last = _LAST_EXPANSION * width
        layers.append(ConvNorm(width, last, eps=_EPS, activation=nn.Hardswish))
        self.features = nn.Sequential(*layers)
        hidden = channels(_LAST_CHANNELS, config.width_percent)
        self.classifier = nn.Sequential(nn.Linear(last, hidden), nn.Hardswish(), nn.Linear(hidden, config.classes))

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.features(pixel_values)))
        return logits
