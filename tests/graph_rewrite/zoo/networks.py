"""Small variants of the zoo's networks, run by PyTorch and by ONNX Runtime."""

from __future__ import annotations

import collections
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor, nn

from graph_rewrite import zoo
from graph_rewrite.zoo.configs.common import Inputs
from tests.small_models import SMALL

TINY_BERT = {**SMALL["bert"], "layers": 1}
HELD_OUT = 32
"""Inputs in a batch over which the statistics of activations are taken."""

_MEASURED = (nn.Linear, nn.Conv2d, nn.Conv3d, nn.LayerNorm, nn.BatchNorm2d, nn.BatchNorm3d)


@cache
def small_network(name: str) -> nn.Module:
    return zoo.build(name, **SMALL[name])


def run_torch(network: nn.Module, inputs: Inputs) -> np.ndarray:
    with torch.no_grad():
        output: Tensor = network(**{name: torch.from_numpy(array) for name, array in inputs.items()})
    return np.asarray(output)


def run_onnx(path: Path, inputs: Inputs) -> np.ndarray:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    (output,) = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"]).run(None, inputs)
    return np.asarray(output)


def relative_error(actual: np.ndarray, expected: np.ndarray) -> float:
    assert actual.shape == expected.shape
    return float(np.abs(actual - expected).max() / np.abs(expected).max())


def activation_scales(network: nn.Module, inputs: Inputs) -> tuple[dict[str, float], np.ndarray]:
    """Return each layer's standard deviation, as a multiple of the calibrated one, and the network's output."""
    scales: dict[str, float] = {}

    def record(path: str, module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> None:
        scales[path] = float(output.std()) / float(getattr(module, "output_std", 1.0))

    handles = [
        module.register_forward_hook(partial(record, path))
        for path, module in network.named_modules()
        if isinstance(module, _MEASURED)
    ]
    output = run_torch(network, inputs)
    for handle in handles:
        handle.remove()
    return scales, output


def exported_operators(name: str) -> collections.Counter[str]:
    model = onnx.load(zoo.export(name, **SMALL[name]), load_external_data=False)
    return collections.Counter(node.op_type for node in model.graph.node)
