"""The provider of a run: CUDA where it works, else the CPU; or OpenVINO where that is asked for."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import onnxruntime as ort

from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency.models import matmul_model
from graph_rewrite.runtime import WorkerClient, WorkerFailure, runtime_of
from graph_rewrite.system.scratch import scratch_folder

Provider = Literal["cpu", "cuda", "openvino"]
CpuProvider = Literal["cpu", "openvino"]
ProviderChoice = Literal["auto", "cpu", "cuda", "openvino"]
"""What a user may ask for: a provider, or ONNX Runtime's with which a device answers."""


class ProviderError(MachineError):
    """The provider that was asked for does not work on this machine; the message says why."""


def resolve_provider(wanted: str) -> Provider:
    """Return `cuda` for `auto` where a CUDA device really answers, else `cpu`; the others give themselves.

    ONNX Runtime lists its CUDA provider also where there is no device, so one matrix product is run on it, in a
    process of its own: the caller does not get a CUDA context.

    Raises:
        ProviderError: for `cuda` where it does not work, and for `openvino` where that is not installed.
        UserError: for any other name.
    """
    if wanted not in get_args(ProviderChoice):
        *others, last = map(repr, get_args(ProviderChoice))
        raise UserError(f"provider must be {', '.join(others)} or {last}, got {wanted!r}")
    if wanted == "openvino":
        if missing := runtime_of(wanted).fault():
            raise ProviderError(f"provider 'openvino' does not work here: {missing}")
        return "openvino"
    if wanted == "cpu":
        return "cpu"
    fault = _cuda_fault()
    if not fault:
        return "cuda"
    if wanted == "auto":
        return "cpu"
    raise ProviderError(f"provider 'cuda' does not work here, and 'auto' would take the CPU: {fault}")


@cache
def _cuda_fault() -> str:
    """Return the reason why CUDA does not work here; empty when it does."""
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        return "this onnxruntime has no CUDA provider (install onnxruntime-gpu)"
    if fault := _driver_fault():
        return fault
    with scratch_folder("provider") as folder, WorkerClient() as worker:
        path = Path(folder) / "matmul.onnx"
        path.write_bytes(matmul_model(64, constant=False).SerializeToString())
        try:
            reply = worker.request({"kind": "probe_cuda", "path": str(path)})
        except WorkerFailure as failure:
            return failure.message
    return "" if reply["status"] == "ok" else str(reply["message"])


def _driver_fault() -> str:
    """Return a sentence where there is no NVIDIA driver, and an empty one where its library is found. Nothing is asked
    of a device, so that the caller gets no CUDA context; and where there is none no process need be started."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    try:
        ctypes.CDLL(library)
    except OSError as error:
        return f"there is no NVIDIA driver: {error}"
    return ""
