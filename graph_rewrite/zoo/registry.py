"""The models that the zoo can build, by name. To add one: a config in configs.py, a module, and an entry here."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from graph_rewrite.zoo.configs import BertConfig, ModelConfig, ResNeXtConfig, SqueezeNetConfig

if TYPE_CHECKING:
    from torch import nn


@dataclass(frozen=True)
class Architecture:
    """A named model: its default configuration, and the class that makes a network of such a configuration."""

    defaults: ModelConfig
    network: str
    """``module:class`` within this package; imported on demand, since it imports PyTorch."""

    def make(self, config: ModelConfig) -> nn.Module:
        """The network with PyTorch's own initial weights."""
        module, _, cls = self.network.partition(":")
        network: nn.Module = getattr(importlib.import_module(f"graph_rewrite.zoo.{module}"), cls)(config)
        return network


ARCHITECTURES: dict[str, Architecture] = {
    "bert": Architecture(BertConfig(), "bert:Bert"),
    "bert-tiny": Architecture(BertConfig(layers=2, hidden=128, heads=2), "bert:Bert"),
    "squeezenet": Architecture(SqueezeNetConfig(), "squeezenet:SqueezeNet"),
    "resnext50": Architecture(ResNeXtConfig(), "resnext:ResNeXt"),
}


def architecture(name: str) -> Architecture:
    """Look a model up.

    Raises:
        ValueError: the zoo has no such model.
    """
    if name not in ARCHITECTURES:
        listing = ", ".join(ARCHITECTURES)
        raise ValueError(f"unknown model {name!r}{_suggestion(name, ARCHITECTURES)}; the zoo has {listing}")
    return ARCHITECTURES[name]


def configure(name: str, params: Mapping[str, int | str]) -> ModelConfig:
    """The configuration of model ``name`` with ``params`` in place of its defaults; strings are decimal integers.

    Raises:
        ValueError: unknown model, unknown parameter, not an integer, or a value out of range.
    """
    defaults = architecture(name).defaults
    known = asdict(defaults)
    for param in params:
        if param not in known:
            listing = ", ".join(f"{key}={value}" for key, value in known.items())
            raise ValueError(
                f"unknown parameter {param!r} of model {name!r}{_suggestion(param, known)}; "
                f"it has (with defaults) {listing}"
            )
    try:
        return replace(defaults, **{param: _integer(param, value) for param, value in params.items()})
    except ValueError as error:
        raise ValueError(f"model {name!r}: {error}") from None


def _integer(param: str, value: object) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, str) and value.removeprefix("-").isdecimal():
        return int(value)
    raise ValueError(f"{param} must be an integer, got {value!r}")


def _suggestion(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
