"""The parameters of the further models, which are all classifiers of images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from graph_rewrite.errors import UserError
from graph_rewrite.zoo.configs.images import ImageConfig


@dataclass(frozen=True)
class DenseNetConfig(ImageConfig):
    """DenseNet with bottlenecks and compression (Huang et al. 2017, arXiv:1608.06993); defaults are DenseNet-121."""

    block1: int = 6
    """Layers of the first dense block."""
    block2: int = 12
    """Layers of the second dense block."""
    block3: int = 24
    """Layers of the third dense block."""
    block4: int = 16
    """Layers of the fourth dense block."""
    growth: int = 32
    """Channels that each layer adds; the stem has twice as many, and a layer's bottleneck four times."""

    @property
    def blocks(self) -> tuple[int, int, int, int]:
        """Layers per dense block."""
        return self.block1, self.block2, self.block3, self.block4


@dataclass(frozen=True)
class MobileNetV3Config(ImageConfig):
    """MobileNetV3-Large (Howard et al. 2019, arXiv:1905.02244)."""

    blocks: int = 15
    """The first blocks of the table, at most 15."""
    width_percent: int = 100
    """The paper's width multiplier, in percent."""

    maximum: ClassVar[dict[str, int]] = {"blocks": 15}


@dataclass(frozen=True)
class EfficientNetConfig(ImageConfig):
    """EfficientNet-B0 (Tan and Le 2019, arXiv:1905.11946)."""

    repeats: int = 4
    """Blocks per stage at most; the published stages have 1 to 4."""
    width_percent: int = 100
    """Channels in percent of the published ones."""


@dataclass(frozen=True)
class SwinConfig(ImageConfig):
    """Swin Transformer (Liu et al. 2021, arXiv:2103.14030); defaults are Swin-T. Patches are of 4 x 4 pixels.

    Each of the four stages halves height and width, and doubles channels and heads. In every second block the windows
    are shifted by half their size, except where one window covers the whole image.
    """

    hidden: int = 96
    """Channels of the first stage, a multiple of ``heads``."""
    heads: int = 3
    """Attention heads of the first stage."""
    stage1: int = 2
    """Blocks in the first stage."""
    stage2: int = 2
    """Blocks in the second stage."""
    stage3: int = 6
    """Blocks in the third stage."""
    stage4: int = 2
    """Blocks in the fourth stage."""
    window: int = 7
    """Height and width of a window in positions. ``image_size`` is a multiple of 32 of them."""
    mlp_ratio: int = 4
    """Width of the feed-forward layer, in multiples of the channels."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise UserError(f"hidden must be a multiple of heads, got hidden={self.hidden} and heads={self.heads}")
        if self.image_size % (32 * self.window):
            raise UserError(f"image_size={self.image_size} is not a multiple of 32 windows of {self.window}")

    @property
    def stages(self) -> tuple[int, int, int, int]:
        """Blocks per stage."""
        return self.stage1, self.stage2, self.stage3, self.stage4


@dataclass(frozen=True)
class ConvNextConfig(ImageConfig):
    """ConvNeXt (Liu et al. 2022, arXiv:2201.03545); defaults are ConvNeXt-T."""

    width: int = 96
    """Channels of the first stage; each of the others has twice as many as the one before."""
    stage1: int = 3
    """Blocks in the first stage."""
    stage2: int = 3
    """Blocks in the second stage."""
    stage3: int = 9
    """Blocks in the third stage."""
    stage4: int = 3
    """Blocks in the fourth stage."""

    @property
    def stages(self) -> tuple[int, int, int, int]:
        """Blocks per stage."""
        return self.stage1, self.stage2, self.stage3, self.stage4
