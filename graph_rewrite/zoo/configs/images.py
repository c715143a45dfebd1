"""The parameters of the convolutional architectures and of ViT: models of images and of video clips."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Self

import numpy as np

from graph_rewrite.errors import UserError
from graph_rewrite.zoo.configs.common import Inputs, ModelConfig

# Images in a calibration batch: enough pixels for per-channel statistics in the last stage, few enough to be quick.
_CALIBRATION_PIXELS = 4 * 224 * 224
_CALIBRATION_IMAGES = (4, 64)
_CALIBRATION_CLIPS = (4, 16)


def channels(published: int, width_percent: int) -> int:
    """``width_percent`` percent of ``published``: that number at 100, else the nearest multiple of 8, but not 0."""
    if width_percent == 100:
        return published
    return max(8, (published * width_percent + 400) // 800 * 8)


@dataclass(frozen=True)
class ImageConfig(ModelConfig):
    """Image classifier: ``pixel_values`` float32 [batch, 3, image_size, image_size] -> ``logits`` [batch, classes]."""

    image_size: int = 224
    """Height and width of the images in pixels, at least 32; ``size`` is another name for it."""
    classes: int = 1000
    """Number of logits."""

    minimum: ClassVar[dict[str, int]] = {"seed": 0, "image_size": 32}
    output_name: ClassVar[str] = "logits"

    def example_inputs(self, seed: int) -> Inputs:
        """float32 [batch, 3, image_size, image_size], standard normal as normalised images are."""
        shape = (self.batch, 3, self.image_size, self.image_size)
        return {"pixel_values": np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)}

    def for_calibration(self) -> Self:
        """Independent of ``batch``."""
        fewest, most = _CALIBRATION_IMAGES
        return replace(self, batch=min(most, max(fewest, _CALIBRATION_PIXELS // self.image_size**2)))


@dataclass(frozen=True)
class SqueezeNetConfig(ImageConfig):
    """SqueezeNet 1.1 (Iandola et al. 2016, arXiv:1602.07360, and the authors' release of version 1.1)."""


@dataclass(frozen=True)
class StagedConfig(ImageConfig):
    """Four stages of residual blocks; each halves height and width (but the first) and doubles the channels."""

    stage1: int = 3
    """Blocks in the first stage."""
    stage2: int = 4
    """Blocks in the second stage."""
    stage3: int = 6
    """Blocks in the third stage."""
    stage4: int = 3
    """Blocks in the fourth stage."""

    @property
    def stages(self) -> tuple[int, int, int, int]:
        """Blocks per stage."""
        return self.stage1, self.stage2, self.stage3, self.stage4


@dataclass(frozen=True)
class ResNeXtConfig(StagedConfig):
    """ResNeXt (Xie et al. 2017, arXiv:1611.05431); defaults are ResNeXt-50 32x4d.

    With one group it is a ResNet with bottlenecks (He et al. 2016, arXiv:1512.03385): ResNet-50 where that has 64
    channels. Stages have 256, 512, 1024 and 2048 channels.
    """

    groups: int = 32
    """Groups of the 3x3 convolutions: the cardinality."""
    width_per_group: int = 4
    """Channels per group in the first stage."""


@dataclass(frozen=True)
class ResNetConfig(StagedConfig):
    """ResNet with blocks of two 3x3 convolutions (He et al. 2016, arXiv:1512.03385); defaults are ResNet-18."""

    stage1: int = 2
    stage2: int = 2
    stage3: int = 2
    stage4: int = 2
    width: int = 64
    """Channels of the first stage."""


@dataclass(frozen=True)
class ResNet3dConfig(ResNetConfig):
    """ResNet with 3-D convolutions over video clips (Tran et al. 2018, arXiv:1711.11248); defaults are R3D-18.

    ``pixel_values`` float32 [batch, 3, frames, image_size, image_size] -> ``logits`` [batch, classes]; the
    classes are those of Kinetics-400.
    """

    image_size: int = 112
    """Height and width of the frames in pixels, at least 32; ``size`` is another name for it."""
    classes: int = 400
    frames: int = 16
    """Frames of a clip."""

    def example_inputs(self, seed: int) -> Inputs:
        """float32 [batch, 3, frames, image_size, image_size], standard normal."""
        shape = (self.batch, 3, self.frames, self.image_size, self.image_size)
        return {"pixel_values": np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)}

    def for_calibration(self) -> Self:
        """Independent of ``batch``."""
        fewest, most = _CALIBRATION_CLIPS
        pixels = self.frames * self.image_size**2
        return replace(self, batch=min(most, max(fewest, _CALIBRATION_PIXELS // pixels)))


@dataclass(frozen=True)
class VggConfig(ImageConfig):
    """VGG (Simonyan and Zisserman 2015, arXiv:1409.1556), configuration E without BatchNorm: VGG-19.

    The first fully connected layer reads (image_size / 32)^2 positions, so its size depends on ``image_size``.
    """

    width: int = 64
    """Channels of the first block; the others have 2, 4, 8 and 8 times as many."""
    hidden: int = 4096
    """Width of the two hidden fully connected layers."""


@dataclass(frozen=True)
class CsrNetConfig(ImageConfig):
    """CSRNet, configuration B (Li et al. 2018, arXiv:1802.10062): density of a crowd.

    ``pixel_values`` float32 [batch, 3, image_size, image_size] -> ``density`` float32 [batch, classes, s, s], with
    s = image_size / 8. Its data sets have images of many sizes; the default is the size of training crops elsewhere.
    """

    classes: int = 1
    """Maps of density."""
    width: int = 64
    """Channels of the first block, and of the last hidden layer."""

    output_name: ClassVar[str] = "density"


@dataclass(frozen=True)
class InceptionConfig(ImageConfig):
    """Inception v3 (Szegedy et al. 2016, arXiv:1512.00567) without the auxiliary classifier, as torchvision has it."""

    image_size: int = 299
    """Height and width of the images in pixels, at least 75; ``size`` is another name for it."""
    grid35: int = 3
    """Modules at 35 x 35 positions."""
    grid17: int = 4
    """Modules at 17 x 17 positions."""
    grid8: int = 2
    """Modules at 8 x 8 positions."""
    width_percent: int = 100
    """Channels in percent of the published ones."""

    minimum: ClassVar[dict[str, int]] = {"seed": 0, "image_size": 75}


@dataclass(frozen=True)
class MobileNetV2Config(ImageConfig):
    """MobileNetV2 (Sandler et al. 2018, arXiv:1801.04381)."""

    repeats: int = 4
    """Blocks per stage at most; the published stages have 1 to 4."""
    width_percent: int = 100
    """The paper's width multiplier, in percent."""


@dataclass(frozen=True)
class NasNetConfig(ImageConfig):
    """NASNet-A (Zoph et al. 2018, arXiv:1707.07012) without the auxiliary classifier; defaults are 6 @ 4032."""

    image_size: int = 331
    """Height and width of the images in pixels, at least 32; ``size`` is another name for it."""
    stages: int = 3
    """Stages of normal cells, with a reduction cell between two; filters double from one to the next."""
    cells: int = 6
    """Normal cells per stage (N of the paper)."""
    filters: int = 4032
    """Channels of the penultimate layer with three stages, a multiple of 96."""
    stem: int = 96
    """Channels of the first convolution."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.filters % 96:
            raise UserError(f"filters must be a multiple of 96, got {self.filters}")


@dataclass(frozen=True)
class VitConfig(ImageConfig):
    """Vision Transformer (Dosovitskiy et al. 2021, arXiv:2010.11929); defaults are ViT-B/16."""

    layers: int = 12
    """Encoder layers."""
    hidden: int = 768
    """Width of the hidden states; a multiple of ``heads``."""
    heads: int = 12
    """Attention heads."""
    mlp_ratio: int = 4
    """Width of the feed-forward layer, in multiples of ``hidden``."""
    patch: int = 16
    """Height and width of a patch in pixels; divides ``image_size``."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise UserError(f"hidden must be a multiple of heads, got hidden={self.hidden} and heads={self.heads}")
        if self.image_size % self.patch:
            raise UserError(f"image_size={self.image_size} is not a multiple of patch={self.patch}")

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (self.image_size // self.patch) ** 2 + 1
