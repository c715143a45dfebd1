"""Networks of the zoo in PyTorch, as contestants: eager, or compiled by Inductor. Importing it imports PyTorch.

A model file of the zoo tells its architecture, its parameters and the seed of its weights. The network is built from
them once, by the very code that exported the file, and its weights are written into a file, so that every session opens
the same ones. Options of the contestant: `model` and `params` as in `graph_rewrite.zoo.build`, `device` where it is not
the CPU, and for Inductor `cache`, the folder with the compiled code.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch._inductor import config as inductor_config

from benchmarks.peers.errors import MissingPeer
from benchmarks.protocol.contestants import Array, Contestant
from graph_rewrite import zoo
from graph_rewrite.errors import UserError
from graph_rewrite.zoo.registry import architecture, configure

_WEIGHTS = "network.safetensors"
_CACHE_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


class PyTorchRunner:
    """A network in evaluation mode, without gradients.

    Args:
        compiled: True for Inductor with frozen weights, which lets it fold constants and lay weights out for the CPU's
            kernels; it compiles at the first run.
        device: where it runs. Inputs are copied there, and outputs back, in every run.
    """

    def __init__(self, network: nn.Module, threads: int, *, compiled: bool = False, device: str = "cpu") -> None:
        torch.set_num_threads(threads)
        # As ONNX Runtime's CUDA provider does unless told otherwise.
        torch.set_float32_matmul_precision("high" if device == "cuda" else "highest")
        self._device = torch.device(device)
        network.eval().to(self._device)
        self._call: Any = network
        if compiled:
            # For the process: Dynamo reads it before it hears the options of `torch.compile`.
            inductor_config.freezing = True
            self._call = torch.compile(network, backend="inductor", dynamic=False)

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs. On the CPU inputs are shared with the arrays, not copied."""
        with torch.inference_mode():
            found = self._call(**{name: torch.from_numpy(value).to(self._device) for name, value in feeds.items()})
        outputs: list[Tensor] = [found] if isinstance(found, Tensor) else list(found)
        return [output.cpu().numpy() for output in outputs]


def open_runner(contestant: Contestant, threads: int) -> PyTorchRunner:
    """Open a network with the weights of the contestant's file.

    Raises:
        UserError: the contestant has no file.
    """
    if contestant.path is None:
        raise UserError(f"contestant {contestant.name}: names no file of weights")
    name, params = contestant.options["model"], contestant.options["params"]
    network = architecture(name).make(configure(name, params))
    load_model(network, contestant.path)
    cache = contestant.options.get("cache")
    if cache is not None:
        os.environ[_CACHE_VARIABLE] = cache
        inductor_config.compile_threads = 1  # the code is compiled already, and processes would disturb the timing
    device = contestant.options.get("device", "cpu")
    return PyTorchRunner(network, threads, compiled=cache is not None, device=device)


def write_network(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Build the network that a file of the zoo was exported from, and write its weights into a folder.

    Returns the `path` of the weights and the `options` of a contestant.

    Raises:
        MissingPeer: this version of the zoo has not exported the file.
    """
    found = zoo.origin(model)
    if found is None:
        raise MissingPeer(f"{model} is no file that this version of the zoo exported")
    name, params = found
    path = folder / _WEIGHTS
    save_model(zoo.build(name, **params), str(path))
    return {"path": str(path), "options": {"model": name, "params": params}}


def compile_network(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """As `write_network`, and run the network once with Inductor, so that later processes find its code in a cache."""
    made = write_network(model, folder, threads)
    cache = folder / "inductor"
    os.environ[_CACHE_VARIABLE] = str(cache)
    options = made["options"]
    network = architecture(options["model"]).make(configure(options["model"], options["params"]))
    load_model(network, made["path"])
    PyTorchRunner(network, threads, compiled=True).run(zoo.example_inputs(options["model"], **options["params"]))
    return {**made, "options": {**options, "cache": str(cache)}}
