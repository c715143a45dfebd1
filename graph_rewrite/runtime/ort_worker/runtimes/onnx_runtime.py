"""ONNX Runtime, with its providers `cpu` and `cuda`."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from statistics import median
from typing import Any

import onnxruntime as ort

from ..deployment import Deployment, check_block
from ..options.optimizers import active_in_log, registered_in_log
from ..options.providers import PROVIDERS
from ..options.session_settings import SessionSettings
from ..sessions.cuda_graphs import CudaGraphSession
from ..sessions.flushing import FlushingSession, can_flush
from .onnx_code import onnx_runtime_code
from .protocol import Kernel, Passes

_INFO = 1
_WEIGHTS = "session.model_external_initializers_file_folder_path"
_KERNEL = "_kernel_time"

Event = dict[str, Any]


class OnnxRuntime:
    """ONNX Runtime behind the interface of runtimes. It is always installed."""

    def fault(self) -> str:
        return ""

    def version(self) -> dict[str, str]:
        return {"onnxruntime": ort.__version__}

    def open(
        self, path: str, deployment: Deployment, *, measuring: bool = False, weights: str | None = None
    ) -> ort.InferenceSession:
        options = deployment.session_options(measuring=measuring)
        if weights is None:
            return open_with(path, deployment, options)
        options.add_session_config_entry(_WEIGHTS, weights)
        return open_with(Path(path).read_bytes(), deployment, options)

    def passes(self, path: str, deployment: Deployment) -> Passes:
        options = deployment.session_options()
        options.log_severity_level = _INFO
        with tempfile.TemporaryFile() as log:
            usual = os.dup(2)
            os.dup2(log.fileno(), 2)
            try:
                open_with(path, deployment, options)
            finally:
                os.dup2(usual, 2)
                os.close(usual)
            log.seek(0)
            text = log.read().decode(errors="replace")
        return Passes(active_in_log(text), registered_in_log(text))

    def write_optimised(self, path: str, deployment: Deployment, written: str) -> None:
        options = deployment.session_options()
        options.optimized_model_filepath = written
        open_with(path, deployment, options)

    def open_profiled(
        self, path: str, deployment: Deployment, folder: str
    ) -> tuple[ort.InferenceSession, Callable[[int], list[Kernel]]]:
        options = deployment.session_options(measuring=True)
        options.enable_profiling = True
        options.profile_file_prefix = os.path.join(folder, "profile")
        session = open_with(path, deployment, options)

        def told(skipped: int) -> list[Kernel]:
            written = session.end_profiling()
            try:
                with open(written, encoding="utf-8") as file:
                    events: list[Event] = json.load(file)
            finally:
                os.unlink(written)
            return kernels(events, skipped)

        return session, told

    def code(self, deployment: Deployment, model: str) -> dict[str, str]:
        return onnx_runtime_code(deployment, model)


RUNTIME = OnnxRuntime()


def open_with(model: str | bytes, deployment: Deployment, options: ort.SessionOptions) -> ort.InferenceSession:
    """Open a session on a model file, or on the bytes of one, with these options in place of the deployment's.

    Raises RuntimeError where the provider is `cuda` and ONNX Runtime fell back to the CPU, which it does silently; and
    where the deployment names the block of another kind of CPU.
    """
    shown = "a model in memory" if isinstance(model, bytes) else model
    check_block(shown, deployment)
    if deployment.provider == "cuda":
        # Finds the CUDA and cuDNN libraries that came as Python packages.
        ort.preload_dlls()
    session = _session_class(deployment.settings)(model, options, providers=deployment.providers())
    wanted, got = PROVIDERS[deployment.provider].session_providers[0], session.get_providers()
    if wanted not in got:
        raise RuntimeError(
            f"ONNX Runtime opened {shown} with {got} instead of {wanted}: is a CUDA device visible, and are"
            " the CUDA and cuDNN libraries that this onnxruntime-gpu was built for installed? Or use provider 'cpu'"
        )
    return session


class _FlushingCudaGraphSession(FlushingSession, CudaGraphSession):
    """A session with CUDA graphs whose operators on the CPU compute without denormals."""


def _session_class(settings: SessionSettings) -> type[ort.InferenceSession]:
    flushing = settings.set_denormal_as_zero and can_flush()
    if settings.enable_cuda_graph:
        return _FlushingCudaGraphSession if flushing else CudaGraphSession
    return FlushingSession if flushing else ort.InferenceSession


def kernels(events: Iterable[Event], skipped: int) -> list[Kernel]:
    """Return the kernels in the events of a profile, without those of the first `skipped` runs. A kernel that runs
    others within its time, such as If, counts as a whole. ONNX Runtime leaves out of `inputs` the weights that it keeps
    in a layout of its own."""
    timed = sorted((event for event in events if "dur" in event), key=lambda event: (event["ts"], -event["dur"]))
    begins = [event["ts"] for event in timed if event["name"] == "model_run"][skipped:]
    merged: dict[tuple[str, str], Kernel] = {}
    end = begins[0] if begins else 0
    for event in timed:
        if event.get("cat") != "Node" or not event["name"].endswith(_KERNEL) or event["ts"] < end:
            continue  # before the first run that counts, or within the kernel before it
        end = event["ts"] + event["dur"]
        about = event["args"]
        entry = merged.setdefault(
            (event["name"], about.get("node_index", "")),
            {
                "name": event["name"].removesuffix(_KERNEL), "op": about["op_name"], "us": [],
                "inputs": _types(about.get("input_type_shape", ())),
                "outputs": _types(about.get("output_type_shape", ())),
            },
        )  # fmt: skip
        entry["us"].append(event["dur"])
    return [{**entry, "us": median(entry["us"])} for entry in merged.values()]


def _types(listed: Iterable[dict[str, list[int]]]) -> list[tuple[str, list[int]]]:
    return [(name, shape) for one in listed for name, shape in one.items()]
