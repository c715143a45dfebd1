"""Inverted residuals with squeeze-and-excitation, as MobileNetV3 and EfficientNet have them."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import RESIDUAL_STD
from graph_rewrite.zoo.architectures.weights import scaled

Function = Callable[[Tensor], Tensor]


class ChannelGate(nn.Module):
    """Scales each channel by a function of the means of all (Hu et al. 2018, arXiv:1709.01507)."""

    def __init__(self, width: int, inner: int, activation: Function, gate: Function) -> None:
        super().__init__()
        self.activation, self.gate = activation, gate
        self.squeeze = nn.Conv2d(width, inner, 1)
        self.excite = scaled(nn.Conv2d(inner, width, 1), RESIDUAL_STD)  # means vary little: 1 would magnify errors

    def forward(self, x: Tensor) -> Tensor:
        mean = F.adaptive_avg_pool2d(x, 1)
        return self.gate(self.excite(self.activation(self.squeeze(mean)))) * x


class GatedInvertedResidual(nn.Module):
    """1x1 convolution that expands, depthwise one, scaled channels, linear 1x1; residual where the shape stays.

    Args:
        inner: channels of the depthwise convolution; where they are those of the input, nothing expands.
        conv: makes a convolution with its normalisation and activation, as `ConvNorm` does.
        gate: scales the inner channels; None for no scaling.
    """

    def __init__(
        self,
        width: int,
        out_width: int,
        inner: int,
        kernel: int,
        stride: int,
        conv: Callable[..., nn.Sequential],
        gate: ChannelGate | None,
    ) -> None:
        super().__init__()
        self.residual = stride == 1 and width == out_width
        layers: list[nn.Module] = [conv(width, inner)] if inner != width else []
        layers.append(conv(inner, inner, kernel, stride=stride, padding=kernel // 2, groups=inner))
        if gate is not None:
            layers.append(gate)
        projection = conv(inner, out_width, activation=None)
        if self.residual:
            scaled(projection[1], RESIDUAL_STD)
        self.layers = nn.Sequential(*layers, projection)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.residual else y
