"""The peers by name, and how each gets ready for a model."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import onnx
import onnxruntime

from benchmarks.peers.errors import MissingPeer
from benchmarks.peers.processes import prepare_apart
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import Contestant
from graph_rewrite import zoo
from graph_rewrite.latency.provider import ProviderError, resolve_provider
from graph_rewrite.runtime import Deployment
from graph_rewrite.system.extras import LIBRARIES, is_installed

Prepare = Callable[[Path, Path, int], Contestant]
"""Makes a contestant out of the original's file, a working folder, and the threads per inference.

Raises:
    MissingPeer: it cannot take part; see `benchmarks.peers.errors`.
"""
COMPILE_S = 1800.0
"""Seconds for compiling a whole model. Inductor compiles a C++ file for each group of fused operators; TensorRT tries
many kernels for each layer."""

_INSTALL = "pip install 'rewritegym[bench]'"


def _ort_level(level: str) -> Prepare:
    def prepare(model: Path, folder: Path, threads: int) -> Contestant:
        return Contestant(f"ort-{level}", ort_runner.MODULE, model, {"plain": True, "optimization_level": level})

    return prepare


def _optimiser(name: str, task: str, *needed: str) -> Prepare:
    """Return how a tool gets ready that writes an optimised ONNX file, for ONNX Runtime with all of its optimisers."""

    def prepare(model: Path, folder: Path, threads: int) -> Contestant:
        _require(name, *needed)
        made = prepare_apart(name, f"benchmarks.peers.optimisers:{task}", model, folder / name, threads)
        options = {"plain": True, "optimization_level": "all", "outputs": made["outputs"]}
        return Contestant(name, ort_runner.MODULE, Path(made["path"]), options)

    return prepare


def _openvino(model: Path, folder: Path, threads: int) -> Contestant:
    _require("openvino", "openvino")
    declared = onnx.load(str(model), load_external_data=False).graph.output
    outputs = [value.name for value in declared]
    return Contestant("openvino", "benchmarks.peers.openvino_runner", model, {"outputs": outputs})


def _pytorch(model: Path, folder: Path, threads: int) -> Contestant:
    return _network("pytorch", "write_network", model, folder, threads)


def _inductor(model: Path, folder: Path, threads: int) -> Contestant:
    compiler = os.environ.get("CXX") or ("clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise MissingPeer(f"inductor compiles C++ and finds no {compiler}: install it, or name a compiler in CXX")
    return _network("inductor", "compile_network", model, folder, threads, COMPILE_S)


def _network(
    name: str, task: str, model: Path, folder: Path, threads: int, timeout_s: float | None = None
) -> Contestant:
    _require(name, "torch", "onnxscript")
    if zoo.origin(model) is None:
        raise MissingPeer(
            f"{name} runs the PyTorch modules of the zoo, and {model} is no file that this version of the zoo exported"
        )
    limit = {} if timeout_s is None else {"timeout_s": timeout_s}
    made = prepare_apart(name, f"benchmarks.peers.pytorch_runner:{task}", model, folder / name, threads, **limit)
    return Contestant(name, "benchmarks.peers.pytorch_runner", Path(made["path"]), made["options"])


def _cuda(model: Path, folder: Path, threads: int) -> Contestant:
    _require_cuda("cuda")
    return Contestant("cuda", ort_runner.MODULE, model, {"plain": True, "provider": "cuda"})


def _cuda_graph(model: Path, folder: Path, threads: int) -> Contestant:
    _require_cuda("cuda-graph")
    deployment = Deployment("cuda", threads).with_settings({"enable_cuda_graph": True})
    return Contestant("cuda-graph", ort_runner.MODULE, model, {"plain": True, "deployment": deployment.to_json()})


def _tensorrt(model: Path, folder: Path, threads: int) -> Contestant:
    if "TensorrtExecutionProvider" not in onnxruntime.get_available_providers():
        raise MissingPeer("tensorrt: this onnxruntime has no TensorRT provider (install onnxruntime-gpu)")
    _require_cuda("tensorrt")
    made = prepare_apart(
        "tensorrt", "benchmarks.peers.tensorrt_runner:build_engine", model, folder / "tensorrt", threads, COMPILE_S
    )
    return Contestant("tensorrt", "benchmarks.peers.tensorrt_runner", model, made)


def _require(name: str, *modules: str) -> None:
    """Check that libraries are installed, without importing them.

    Raises:
        MissingPeer: some are not.
    """
    missing = [LIBRARIES[module].title for module in modules if not is_installed(module)]
    if missing:
        raise MissingPeer(f"{name} needs {' and '.join(missing)}: {_INSTALL}")


def _require_cuda(name: str) -> None:
    try:
        resolve_provider("cuda")
    except ProviderError as error:
        raise MissingPeer(f"{name}: {error}") from error


PEERS: dict[str, Prepare] = {
    "ort-none": _ort_level("none"),
    "ort-basic": _ort_level("basic"),
    "ort-extended": _ort_level("extended"),
    "ort-all": _ort_level("all"),
    "ort-transformers": _optimiser("ort-transformers", "optimise_transformers"),
    "onnxsim": _optimiser("onnxsim", "run_onnxsim", "onnxsim"),
    "onnxslim": _optimiser("onnxslim", "run_onnxslim", "onnxslim"),
    "onnxscript": _optimiser("onnxscript", "run_onnxscript", "onnxscript"),
    "openvino": _openvino,
    "pytorch": _pytorch,
    "inductor": _inductor,
    "cuda": _cuda,
    "cuda-graph": _cuda_graph,
    "tensorrt": _tensorrt,
}
"""The peers by name; the package's docstring describes them."""
