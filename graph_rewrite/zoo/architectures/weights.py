"""Random weights with which a network behaves like a trained one: unit scale everywhere, outputs that depend on inputs.

Plainly random weights fail as test material: activations shrink to 1e-9 or explode, a softmax is uniform or a single
one, zero biases hide wrong bias arithmetic, and then any two graphs look equivalent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

_SPREAD = 0.1  # standard deviation of biases, and of the gains of normalisations relative to their mean
_Affine = (nn.Linear, nn.Conv2d, nn.Conv3d)
_BatchNorm = (nn.BatchNorm2d, nn.BatchNorm3d)
_Normalisation = (nn.LayerNorm, *_BatchNorm)
_ModuleT = TypeVar("_ModuleT", bound=nn.Module)


class Learned(nn.Module):
    """A parameter of its own, such as position embeddings or an initial state; drawn like an embedding."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(shape))

    def forward(self) -> Tensor:
        return self.weight


def scaled(module: _ModuleT, std: float) -> _ModuleT:
    """Mark a layer whose outputs shall have the standard deviation ``std`` instead of 1, and return it.

    It is for the last layer of a residual branch. Where branches are as large as the stream that they join, differences
    between inputs, and rounding errors with them, grow from block to block, and all tokens of a sequence become alike.
    """
    module.output_std = std  # type: ignore[assignment]  # nn.Module declares attributes as Tensor or Module
    return module


def shifted(network: _ModuleT, mean: float) -> _ModuleT:
    """Mark all BatchNorms and biased convolutions, whose outputs shall have the mean ``mean`` instead of 0; return it.

    It is for deep networks without shortcuts. BatchNorm, or a bias that centres, takes away the mean that ReLU makes,
    and magnifies what is left: differences between inputs, and rounding errors with them, grow by a factor of 1.2 from
    layer to layer with a mean of 0, and of 1.06 with a mean of 1.
    """
    for module in network.modules():
        if isinstance(module, _BatchNorm) or (isinstance(module, nn.Conv2d) and module.bias is not None):
            module.output_mean = mean  # type: ignore[assignment]  # as in scaled
    return network


def _output_std(module: nn.Module) -> float:
    return float(getattr(module, "output_std", 1.0))


@torch.no_grad()
def initialise(network: nn.Module, seed: int) -> None:
    """Draw all parameters anew: LeCun scaling (variance 1 / fan-in), unit embeddings, small biases, gains near 1.

    Uniform distributions, because they are drawn without transcendental functions and so are the same on every CPU.

    Raises:
        TypeError: a module has parameters of its own that no rule here covers.
    """
    generator = torch.Generator().manual_seed(seed)

    def draw(parameter: Tensor, std: float, mean: float = 0.0) -> None:
        bound = math.sqrt(3.0) * std
        parameter.uniform_(mean - bound, mean + bound, generator=generator)

    for name, module in network.named_modules():
        if isinstance(module, _Affine):
            draw(module.weight, std=1 / math.sqrt(module.weight[0].numel()))
        elif isinstance(module, nn.Embedding | Learned):
            draw(module.weight, std=1.0)
        elif isinstance(module, _Normalisation):
            gain = _output_std(module)
            draw(module.weight, std=_SPREAD * gain, mean=gain)
        elif any(True for _ in module.parameters(recurse=False)):
            raise TypeError(f"no rule to initialise {type(module).__name__} at {name!r}")
        if isinstance(module, (*_Affine, *_Normalisation)) and module.bias is not None:
            draw(module.bias, std=_SPREAD, mean=float(getattr(module, "output_mean", 0.0)))


@torch.no_grad()
def calibrate(network: nn.Module, inputs: Mapping[str, Tensor]) -> None:
    """Scale every layer by the data that reaches it, in one forward pass (Mishkin and Matas 2016, arXiv:1511.06422).

    After it, on ``inputs``, every Linear and convolution has outputs of standard deviation 1, or as ``scaled`` says (at
    the first call of a layer that is called several times), and BatchNorm's running statistics are those of ``inputs``.
    Layers with a bias are also centred, so that their channels have means near 0: otherwise the outputs of a deep ReLU
    network hardly depend on its inputs. Heads on pooled features are not: a few examples say little about their
    channels' means, and centring would magnify rounding errors as much as the small differences between random images.
    The network is left in float32 and in evaluation mode.

    The pass runs in float64, and scales are rounded: so its rounding errors, which vary with the number of threads,
    vanish in the float32 weights, and a seed gives the same weights at any number.

    Raises:
        ValueError: the outputs of a layer are constant or not finite.
    """
    handles: dict[str, RemovableHandle] = {}
    for name, module in network.named_modules():
        if isinstance(module, _Affine):
            handles[name] = module.register_forward_hook(partial(_normalise, name, handles))
        elif isinstance(module, _BatchNorm):
            module.reset_running_stats()
            module.momentum = None  # a cumulative average: one batch sets the statistics
    network.train().double()
    try:
        network(**{name: value.double() if value.is_floating_point() else value for name, value in inputs.items()})
    finally:
        for handle in handles.values():
            handle.remove()
        network.float().eval()


def _normalise(
    name: str,
    handles: Mapping[str, RemovableHandle],
    layer: nn.Linear | nn.Conv2d | nn.Conv3d,
    _inputs: Any,
    output: Tensor,
) -> Tensor:
    """Forward hook: change ``layer`` so that its output is calibrated, and return that output; further calls do not."""
    handles[name].remove()
    channel_axis = output.ndim - 1 if isinstance(layer, nn.Linear) else 1
    others = [axis for axis in range(output.ndim) if axis != channel_axis]
    per_channel = [-1 if axis == channel_axis else 1 for axis in range(output.ndim)]
    bias = output.new_zeros(output.shape[channel_axis]) if layer.bias is None else layer.bias.clone()
    product = output - bias.view(per_channel)
    centred = layer.bias is not None and output.ndim > 2
    mean = product.mean(dim=others) if centred else torch.zeros_like(bias)
    std = float((product - mean.view(per_channel)).std())
    if not math.isfinite(std) or std < 1e-12:
        raise ValueError(f"cannot calibrate layer {name!r}: its outputs have standard deviation {std:g}")
    scale = float(f"{_output_std(layer) / std:.6g}")  # the last digits of a sum depend on the number of threads
    layer.weight.mul_(scale)
    shift = bias - mean * scale
    if layer.bias is not None:
        layer.bias.copy_(shift)
    return product * scale + shift.view(per_channel)
