"""NASNet-A: normal and reduction cells that architecture search found (figure 4 of the paper).

A cell reads the output of the cell before (``current``) and of the one before that (``previous``). Details that the
paper leaves open are those of the authors' TensorFlow code: its padding, its BatchNorm's eps, how ``previous`` is
brought to the size of ``current``.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from graph_rewrite.zoo.architectures.layers import SHIFT, pooled
from graph_rewrite.zoo.architectures.weights import shifted
from graph_rewrite.zoo.configs.images import NasNetConfig

_EPS = 0.001
_NORMAL_OUTPUTS, _REDUCTION_OUTPUTS = 6, 4  # results that a cell concatenates


class SameConv2d(nn.Conv2d):
    """Convolution without bias, padded as TensorFlow's SAME: the output has ceil(size / stride) positions.

    Where the padding is odd, right and bottom get the larger part.
    """

    def __init__(self, channels: int, kernel_size: int, stride: int) -> None:
        super().__init__(channels, channels, kernel_size, stride, groups=channels, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        (kernel, _), (stride, _) = self.kernel_size, self.stride
        padding = _same_padding(x, kernel, stride)
        if padding % 2:
            x = F.pad(x, (0, 1, 0, 1))
        return F.conv2d(x, self.weight, None, self.stride, padding // 2, groups=self.groups)


class Separable(nn.Module):
    """Twice ReLU, depthwise convolution, 1x1 convolution and BatchNorm; the first depthwise convolution strides."""

    def __init__(self, channels: int, out_channels: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.first = self._half(channels, out_channels, kernel_size, stride)
        self.second = self._half(out_channels, out_channels, kernel_size, 1)

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.second(self.first(x))
        return output

    @staticmethod
    def _half(channels: int, out_channels: int, kernel_size: int, stride: int) -> nn.Sequential:
        return nn.Sequential(
            nn.ReLU(),
            SameConv2d(channels, kernel_size, stride),
            nn.Conv2d(channels, out_channels, kernel_size=1, bias=False),
            nn.BatchNorm2d(out_channels, eps=_EPS),
        )


class Pointwise(nn.Sequential):
    """ReLU, 1x1 convolution and BatchNorm."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__(
            nn.ReLU(), nn.Conv2d(channels, out_channels, kernel_size=1, bias=False), nn.BatchNorm2d(out_channels, _EPS)
        )


class FactorizedReduction(nn.Module):
    """Halves height and width: 1x1 convolutions of the even positions and of the odd ones, concatenated."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(channels, out_channels // 2, kernel_size=1, bias=False)
        self.odd = nn.Conv2d(channels, out_channels - out_channels // 2, kernel_size=1, bias=False)
        self.norm = nn.BatchNorm2d(out_channels, eps=_EPS)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        even, odd = (F.avg_pool2d(y, 1, stride=2) for y in (x, x[:, :, 1:, 1:]))
        if x.shape[-1] % 2:
            odd = F.pad(odd, (0, 1, 0, 1))  # before the pool it would be the same, but the exporter makes invalid pads
        output: Tensor = self.norm(torch.cat((self.even(even), self.odd(odd)), dim=1))
        return output


class NormalCell(nn.Module):
    """Keeps height and width; the output has 6 times ``width`` channels. ``reduce``: ``previous`` is twice as large."""

    def __init__(self, previous: int, current: int, width: int, *, reduce: bool) -> None:
        super().__init__()
        self.previous = FactorizedReduction(previous, width) if reduce else Pointwise(previous, width)
        self.current = Pointwise(current, width)
        self.current5 = Separable(width, width, 5)
        self.previous3 = Separable(width, width, 3)
        self.previous5 = Separable(width, width, 5)
        self.other_previous3 = Separable(width, width, 3)
        self.current3 = Separable(width, width, 3)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        p, c = self.previous(previous), self.current(current)
        results = (
            p,
            self.current5(c) + self.previous3(p),
            self.previous5(p) + self.other_previous3(p),
            _average(c, 1) + p,
            _average(p, 1) + _average(p, 1),
            self.current3(c) + c,
        )
        return torch.cat(results, dim=1)


class ReductionCell(nn.Module):
    """Halves height and width; the output has 4 times ``width`` channels.

    The ``first`` of a network has one input, which it reads as ``current`` and, unchanged, as ``previous``.
    """

    def __init__(self, previous: int, current: int, width: int, *, reduce: bool = False, first: bool = False) -> None:
        super().__init__()
        self.previous: nn.Module = nn.Identity()
        channels = previous if first else width
        if not first:
            self.previous = FactorizedReduction(previous, width) if reduce else Pointwise(previous, width)
        self.current = Pointwise(current, width)
        self.current5 = Separable(width, width, 5, stride=2)
        self.previous7 = Separable(channels, width, 7, stride=2)
        self.other_previous7 = Separable(channels, width, 7, stride=2)
        self.previous5 = Separable(channels, width, 5, stride=2)
        self.inner3 = Separable(width, width, 3)

    def forward(self, current: Tensor, previous: Tensor) -> Tensor:
        p, c = self.previous(previous), self.current(current)
        inner = self.current5(c) + self.previous7(p)
        second = _maximum(c) + self.other_previous7(p)
        third = _average(c, 2) + self.previous5(p)
        return torch.cat((second, third, _average(inner, 1) + second, self.inner3(inner) + _maximum(c)), dim=1)


class NasNet(nn.Module):
    """``pixel_values`` float32 [batch, 3, size, size] -> ``logits`` float32 [batch, classes]."""

    def __init__(self, config: NasNetConfig) -> None:
        super().__init__()
        width = config.filters // 24
        self.stem = nn.Sequential(
            nn.Conv2d(3, config.stem, kernel_size=3, stride=2, bias=False), nn.BatchNorm2d(config.stem, eps=_EPS)
        )
        self.stem0 = ReductionCell(config.stem, config.stem, width // 4, first=True)
        self.stem1 = ReductionCell(config.stem, width, width // 2, reduce=True)
        stages: list[nn.ModuleList] = []
        reductions: list[nn.Module] = []
        previous, current = width, 2 * width  # channels of the last two outputs
        for stage in range(config.stages):
            if stage:
                width *= 2
                reductions.append(ReductionCell(previous, current, width))
                current = _REDUCTION_OUTPUTS * width
            cells = nn.ModuleList()
            for index in range(config.cells):
                cells.append(NormalCell(previous, current, width, reduce=index == 0))
                previous, current = current, _NORMAL_OUTPUTS * width
            stages.append(cells)
        self.stages, self.reductions = nn.ModuleList(stages), nn.ModuleList(reductions)
        self.classifier = nn.Linear(current, config.classes)
        shifted(self, SHIFT)

    def forward(self, pixel_values: Tensor) -> Tensor:
        x = self.stem(pixel_values)
        previous = self.stem0(x, x)
        current = self.stem1(previous, x)
        for stage, cells in enumerate(self.stages):
            assert isinstance(cells, nn.ModuleList)
            if stage:
                # `previous` stays: in the large model a stage's first cell reads past the input of the reduction.
                current = self.reductions[stage - 1](current, previous)
            for cell in cells:
                previous, current = current, cell(current, previous)
        logits: Tensor = self.classifier(pooled(F.relu(current)))
        return logits


def _same_padding(x: Tensor, kernel: int, stride: int) -> int:
    """Positions to add to height and to width; images are square."""
    size = x.shape[-1]
    outputs = -(-size // stride)
    return max(0, (outputs - 1) * stride + kernel - size)


def _average(x: Tensor, stride: int) -> Tensor:
    """3x3 averages, of positions within the image only."""
    symmetric = _same_padding(x, 3, stride) % 2 == 0
    return F.avg_pool2d(x, 3, stride, padding=int(symmetric), ceil_mode=not symmetric, count_include_pad=False)


def _maximum(x: Tensor) -> Tensor:
    """3x3 maxima at every second position."""
    symmetric = _same_padding(x, 3, 2) % 2 == 0
    return F.max_pool2d(x, 3, 2, padding=int(symmetric), ceil_mode=not symmetric)
