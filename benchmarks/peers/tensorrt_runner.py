"""Models in ONNX Runtime's TensorRT provider, as contestants.

Its option `cache` is the folder with the built engines.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnxruntime as ort

from benchmarks.peers.errors import MissingPeer
from benchmarks.protocol.contestants import Array, Contestant, as_arrays
from graph_rewrite.errors import UserError

_PROVIDER = "TensorrtExecutionProvider"
_ERRORS_ONLY = 3


class TensorRtRunner:
    """A session whose nodes run in TensorRT where it has them, else on CUDA. Engines come from a cache.

    Raises:
        MissingPeer: ONNX Runtime cannot load TensorRT, and would take another provider.
    """

    def __init__(self, path: Path, cache: str, threads: int) -> None:
        ort.preload_dlls()
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = _ERRORS_ONLY
        settings = {"trt_engine_cache_enable": "1", "trt_engine_cache_path": cache, "trt_timing_cache_enable": "1"}
        providers = [(_PROVIDER, settings), "CUDAExecutionProvider", "CPUExecutionProvider"]
        self._session = ort.InferenceSession(str(path), options, providers=providers)
        if _PROVIDER not in self._session.get_providers():
            raise MissingPeer("ONNX Runtime cannot load TensorRT; are its libraries installed (pip install tensorrt)?")
        self.outputs = [item.name for item in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Array]) -> list[Array]:
        """Return the outputs, copied from the device."""
        return as_arrays(self._session.run(self.outputs, dict(feeds)))


def open_runner(contestant: Contestant, threads: int) -> TensorRtRunner:
    """Open a contestant's file in TensorRT.

    Raises:
        UserError: the contestant has no file.
        MissingPeer: as `TensorRtRunner`.
    """
    if contestant.path is None:
        raise UserError(f"contestant {contestant.name}: names no model file")
    return TensorRtRunner(contestant.path, contestant.options["cache"], threads)


def build_engine(model: Path, folder: Path, threads: int) -> dict[str, Any]:
    """Build the engines of a model into a cache, and return the options of a contestant.

    Raises:
        MissingPeer: as `TensorRtRunner`.
    """
    cache = folder / "engines"
    cache.mkdir(exist_ok=True)
    TensorRtRunner(model, str(cache), threads)
    return {"cache": str(cache)}
