"""The models that the zoo can build, by name. docs/extending/model.md tells how to add one."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from graph_rewrite.errors import UserError
from graph_rewrite.zoo.configs import images as image
from graph_rewrite.zoo.configs import sequences as sequence
from graph_rewrite.zoo.configs.common import BertConfig, ModelConfig
from graph_rewrite.zoo.further import configs as further

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """A named model: its default configuration, and the class that makes a network of such a configuration."""

    defaults: ModelConfig
    network: str
    """``module:class`` within ``package``; imported on demand, since it imports PyTorch."""
    package: str = "architectures"
    """The package of the zoo that holds the network."""

    @property
    def module(self) -> str:
        """Name of the network's module within ``package``."""
        return self.network.partition(":")[0]

    def make(self, config: ModelConfig) -> nn.Module:
        """The network with PyTorch's own initial weights."""
        cls = self.network.partition(":")[2]
        module = importlib.import_module(f"graph_rewrite.zoo.{self.package}.{self.module}")
        network: nn.Module = getattr(module, cls)(config)
        return network


SCHEME = "zoo://"
"""What the URIs of the zoo's models begin with, as in ``zoo://bert?layers=2``."""

ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(BertConfig(), "bert:Bert"),
    "bert-tiny": Architecture(BertConfig(layers=2, hidden=128, heads=2), "bert:Bert"),
    "vit": Architecture(image.VitConfig(), "vit:Vit"),
    "dalle": Architecture(sequence.DalleConfig(), "dalle:Dalle"),
    "transformer-transducer": Architecture(sequence.TransducerConfig(), "transducer:TransformerTransducer"),
    "nasrnn": Architecture(sequence.NasRnnConfig(), "nasrnn:NasRnn"),
    "squeezenet": Architecture(image.SqueezeNetConfig(), "squeezenet:SqueezeNet"),
    "mobilenet-v2": Architecture(image.MobileNetV2Config(), "mobilenet:MobileNetV2"),
    "resnet18": Architecture(image.ResNetConfig(), "resnet:ResNet"),
    "resnet50": Architecture(image.ResNeXtConfig(groups=1, width_per_group=64), "resnext:ResNeXt"),
    "resnext50": Architecture(image.ResNeXtConfig(), "resnext:ResNeXt"),
    "inception-v3": Architecture(image.InceptionConfig(), "inception:Inception"),
    "nasnet-a": Architecture(image.NasNetConfig(), "nasnet:NasNet"),
    "vgg19": Architecture(image.VggConfig(), "vgg:Vgg19"),
    "csrnet": Architecture(image.CsrNetConfig(), "vgg:CsrNet"),
    "resnet3d18": Architecture(image.ResNet3dConfig(), "resnet:ResNet"),
}
"""The models on which tables and recorded states are computed."""

FURTHER: dict[str, Architecture] = {
    "densenet121": Architecture(further.DenseNetConfig(), "densenet:DenseNet", "further"),
    "mobilenet-v3-large": Architecture(further.MobileNetV3Config(), "mobilenet_v3:MobileNetV3", "further"),
    "efficientnet-b0": Architecture(further.EfficientNetConfig(), "efficientnet:EfficientNet", "further"),
    "swin-t": Architecture(further.SwinConfig(), "swin:Swin", "further"),
    "convnext-t": Architecture(further.ConvNextConfig(), "convnext:ConvNext", "further"),
}
"""Models that can be named like the others but are in no table."""

ALIASES = {"size": "image_size"}
"""Other names of parameters."""


def architecture(name: str) -> Architecture:
    """Look a model up.

    Raises:
        ValueError: the zoo has no such model.
    """
    known = {**ARCHITECTURES, **FURTHER}
    if name not in known:
        raise UserError(f"unknown model {name!r}{_suggestion(name, known)}; the zoo has {', '.join(known)}")
    return known[name]


def configure(name: str, params: Mapping[str, int | str]) -> ModelConfig:
    """The configuration of model ``name`` with ``params`` in place of its defaults; strings are decimal integers.

    Raises:
        ValueError: unknown model, unknown parameter, not an integer, or a value out of range.
    """
    defaults = architecture(name).defaults
    known = asdict(defaults)
    settings: dict[str, int | str] = {}
    for given, value in params.items():
        param = ALIASES.get(given, given)
        if param not in known:
            listing = ", ".join(f"{key}={value}" for key, value in known.items())
            raise UserError(
                f"unknown parameter {given!r} of model {name!r}{_suggestion(given, known)}; "
                f"it has (with defaults) {listing}"
            )
        if param in settings:
            raise UserError(f"{param} of model {name!r} is given twice, once as {given!r}")
        settings[param] = value
    try:
        return replace(defaults, **{param: _integer(param, value) for param, value in settings.items()})
    except UserError as error:
        raise UserError(f"model {name!r}: {error}") from None


def _integer(param: str, value: object) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    raise UserError(f"{param} must be an integer, got {value!r}")


def _suggestion(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def name_in(uri: str) -> str:
    """Return the name in a URI of the zoo, which may lack the scheme: ``bert`` of ``zoo://bert?layers=2``."""
    return uri.removeprefix(SCHEME).partition("?")[0]


def family_of(uri: str) -> str:
    """Return the architecture of a model of the zoo, which may have several names; empty for what is none."""
    try:
        return architecture(name_in(uri)).module
    except UserError:
        return ""
