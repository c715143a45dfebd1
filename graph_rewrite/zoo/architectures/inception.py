"""Inception v3: five kinds of modules with parallel branches; 1x7, 7x1, 1x3 and 3x1 convolutions."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import SHIFT, ConvNorm, pooled
from graph_rewrite.zoo.architectures.weights import shifted
from graph_rewrite.zoo.configs.images import InceptionConfig, channels

_conv = partial(ConvNorm, eps=0.001)  # the eps of the published models


def _row(width: int, out_width: int, size: int = 7) -> ConvNorm:
    return _conv(width, out_width, (1, size), padding=(0, size // 2))


def _column(width: int, out_width: int, size: int = 7) -> ConvNorm:
    return _conv(width, out_width, (size, 1), padding=(size // 2, 0))


def _first(count: int, *published: int) -> list[int]:
    """The first ``count`` numbers of channels; further modules are like the last."""
    return [published[min(index, len(published) - 1)] for index in range(count)]


class Parallel(nn.ModuleList):
    """Branches over the same input, concatenated along the channels."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self], dim=1)


class AveragePool(nn.Module):
    """3x3 averages at every position; zeros around the border count."""

    def forward(self, x: Tensor) -> Tensor:
        return F.avg_pool2d(x, kernel_size=3, stride=1, padding=1)


class Inception(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: InceptionConfig) -> None:
        super().__init__()
        self._percent = config.width_percent
        n = self._scaled
        self.stem = nn.Sequential(
            _conv(3, n(32), 3, stride=2),
            _conv(n(32), n(32), 3),
            _conv(n(32), n(64), 3, padding=1),
            nn.MaxPool2d(kernel_size=3, stride=2),
            _conv(n(64), n(80), 1),
            _conv(n(80), n(192), 3),
            nn.MaxPool2d(kernel_size=3, stride=2),
        )
        modules: list[nn.Module] = []
        width = n(192)
        for pool in _first(config.grid35, 32, 64):
            modules.append(self._grid35(width, pool))
            width = n(64) + n(64) + n(96) + n(pool)
        modules.append(self._reduce35(width))
        width += n(384) + n(96)
        for inner in _first(config.grid17, 128, 160, 160, 192):
            modules.append(self._grid17(width, inner))
            width = 4 * n(192)
        modules.append(self._reduce17(width))
        width += n(320) + n(192)
        for _ in range(config.grid8):
            modules.append(self._grid8(width))
            width = n(320) + 4 * n(384) + n(192)
        self.blocks = nn.Sequential(*modules)
        self.classifier = nn.Linear(width, config.classes)
        shifted(self, SHIFT)

    def forward(self, pixel_values: Tensor) -> Tensor:
        logits: Tensor = self.classifier(pooled(self.blocks(self.stem(pixel_values))))
        return logits

    def _scaled(self, published: int) -> int:
        return channels(published, self._percent)

    def _grid35(self, width: int, pool: int) -> nn.Module:
        """Figure 5 of the paper; the second branch is one 5x5 convolution in the published model."""
        n = self._scaled
        return Parallel(
            [
                _conv(width, n(64)),
                nn.Sequential(_conv(width, n(48)), _conv(n(48), n(64), 5, padding=2)),
                nn.Sequential(
                    _conv(width, n(64)), _conv(n(64), n(96), 3, padding=1), _conv(n(96), n(96), 3, padding=1)
                ),
                nn.Sequential(AveragePool(), _conv(width, n(pool))),
            ]
        )

    def _reduce35(self, width: int) -> nn.Module:
        """Figure 10: 35 x 35 to 17 x 17."""
        n = self._scaled
        return Parallel(
            [
                _conv(width, n(384), 3, stride=2),
                nn.Sequential(_conv(width, n(64)), _conv(n(64), n(96), 3, padding=1), _conv(n(96), n(96), 3, stride=2)),
                nn.MaxPool2d(kernel_size=3, stride=2),
            ]
        )

    def _grid17(self, width: int, inner: int) -> nn.Module:
        """Figure 6, n = 7."""
        n = self._scaled
        return Parallel(
            [
                _conv(width, n(192)),
                nn.Sequential(_conv(width, n(inner)), _row(n(inner), n(inner)), _column(n(inner), n(192))),
                nn.Sequential(
                    _conv(width, n(inner)),
                    _column(n(inner), n(inner)),
                    _row(n(inner), n(inner)),
                    _column(n(inner), n(inner)),
                    _row(n(inner), n(192)),
                ),
                nn.Sequential(AveragePool(), _conv(width, n(192))),
            ]
        )

    def _reduce17(self, width: int) -> nn.Module:
        """17 x 17 to 8 x 8."""
        n = self._scaled
        return Parallel(
            [
                nn.Sequential(_conv(width, n(192)), _conv(n(192), n(320), 3, stride=2)),
                nn.Sequential(
                    _conv(width, n(192)),
                    _row(n(192), n(192)),
                    _column(n(192), n(192)),
                    _conv(n(192), n(192), 3, stride=2),
                ),
                nn.MaxPool2d(kernel_size=3, stride=2),
            ]
        )

    def _grid8(self, width: int) -> nn.Module:
        """Figure 7: 1x3 and 3x1 convolutions side by side."""
        n = self._scaled
        return Parallel(
            [
                _conv(width, n(320)),
                nn.Sequential(_conv(width, n(384)), self._cross()),
                nn.Sequential(_conv(width, n(448)), _conv(n(448), n(384), 3, padding=1), self._cross()),
                nn.Sequential(AveragePool(), _conv(width, n(192))),
            ]
        )

    def _cross(self) -> nn.Module:
        n = self._scaled(384)
        return Parallel([_row(n, n, 3), _column(n, n, 3)])
