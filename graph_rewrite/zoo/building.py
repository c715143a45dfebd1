"""Networks of the zoo in PyTorch, with random, calibrated weights, and their export. Importing it imports PyTorch."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, nn

from graph_rewrite.zoo.architectures.weights import calibrate, initialise
from graph_rewrite.zoo.configs.common import ModelConfig
from graph_rewrite.zoo.exporter import export_onnx
from graph_rewrite.zoo.registry import architecture


def count_parameters(name: str, config: ModelConfig) -> int:
    """Return the number of trainable parameters, counted without allocating them."""
    with torch.device("meta"):
        network = architecture(name).make(config)
    return sum(parameter.numel() for parameter in network.parameters())


def build_network(name: str, config: ModelConfig) -> nn.Module:
    """Return the network in evaluation mode, float32, with its random weights."""
    with torch.random.fork_rng(devices=[]):  # modules draw initial weights, replaced below, from the global generator
        network = architecture(name).make(config)
    initialise(network, config.seed)
    calibrate(network, _tensors(config.for_calibration()))
    return network


def export_network(name: str, config: ModelConfig, path: Path) -> None:
    """Build the network and write it as ONNX."""
    inputs = _tensors(config)
    export_onnx(build_network(name, config), inputs, config.output_name, path)


def _tensors(config: ModelConfig) -> dict[str, Tensor]:
    return {name: torch.from_numpy(array) for name, array in config.example_inputs(config.seed).items()}
