"""OpenVINO on the CPU, in float32, compiled for latency: one stream with all threads."""

from __future__ import annotations

import functools
import json
import os
import shutil
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from ..deployment import Deployment
from ..sessions.openvino_session import ELEMENTS, OpenVinoSession
from .protocol import Kernel, Passes

DISTRIBUTION = "openvino"
_DEVICE = "CPU"
_MISSING = "not installed"
_OTHERS = frozenset({"Parameter", "Result", "Const", "Input", "Output"})
"""Types of nodes of a compiled model that compute nothing."""

_PYTHON = """\
import openvino

settings = {{
{settings}}}
session = openvino.Core().compile_model({model}, "CPU", settings)
# session({{name: array}}) runs it; .to_tuple() gives the outputs in the order of the file.
"""
_CPP = """\
#include <openvino/openvino.hpp>

ov::Core core;
ov::AnyMap settings{{{settings}}};
ov::CompiledModel session = core.compile_model({model}, "CPU", settings);
"""


def settings_of(deployment: Deployment) -> dict[str, str | int]:
    """Return what OpenVINO is told when it compiles a model. Without the hint of a precision it computes in bfloat16
    where the CPU can."""
    return {
        "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": deployment.threads,
        "NUM_STREAMS": 1,
    }  # fmt: skip


class OpenVino:
    """OpenVINO behind the interface of runtimes. It has no passes that may be refused one by one."""

    def fault(self) -> str:
        missing = _version() == _MISSING
        return "OpenVINO is not installed: pip install 'rewritegym[openvino]'" if missing else ""

    def version(self) -> dict[str, str]:
        return {"openvino": _version()}

    def open(
        self, path: str, deployment: Deployment, *, measuring: bool = False, weights: str | None = None
    ) -> OpenVinoSession:
        if weights is not None:
            _put_beside(path, weights)
        model = _core().read_model(path)
        return OpenVinoSession(model, _core().compile_model(model, _DEVICE, settings_of(deployment)))

    def passes(self, path: str, deployment: Deployment) -> Passes:
        self.open(path, deployment)
        return Passes()

    def write_optimised(self, path: str, deployment: Deployment, written: str) -> None:
        raise NotImplementedError("OpenVINO writes no ONNX file of what it makes of a model")

    def open_profiled(
        self, path: str, deployment: Deployment, folder: str
    ) -> tuple[OpenVinoSession, Callable[[int], list[Kernel]]]:
        model, runs = _core().read_model(path), list[dict[str, float]]()
        compiled = _core().compile_model(model, _DEVICE, {**settings_of(deployment), "PERF_COUNT": True})

        def note(request: Any) -> None:
            told = request.get_profiling_info()
            runs.append({one.node_name: one.real_time.total_seconds() for one in told if _was_run(one)})

        return OpenVinoSession(model, compiled, note), lambda skipped: _kernels(compiled, runs[skipped:])

    def code(self, deployment: Deployment, model: str) -> dict[str, str]:
        settings = settings_of(deployment)
        lines = "".join(f"    {json.dumps(name)}: {json.dumps(value)},\n" for name, value in settings.items())
        pairs = ", ".join(f'{{"{name}", {json.dumps(value)}}}' for name, value in settings.items())
        return {
            "python": _PYTHON.format(model=json.dumps(model, ensure_ascii=False), settings=lines),
            "cpp": _CPP.format(model=json.dumps(model, ensure_ascii=False), settings=pairs),
        }


RUNTIME = OpenVino()


@functools.cache
def _version() -> str:
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return _MISSING


@functools.cache
def _core() -> Any:
    import openvino  # it may be missing, and takes a third of a second to load

    return openvino.Core()


def _put_beside(path: str, weights: str) -> None:
    """Put the external data of a model, which lie in a folder, beside it: OpenVINO reads them there and nowhere else,
    and through no symbolic link. They are copied where the file system cannot link them."""
    model, home = Path(path).read_bytes(), Path(path).parent
    for file in _named_in(model, Path(weights)):
        place = home / file.relative_to(weights)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not place.exists():
            try:
                os.link(os.path.realpath(file), place)  # a link to a link would be one
            except OSError:  # another file system
                shutil.copyfile(file, place)


def _named_in(model: bytes, folder: Path) -> Iterator[Path]:
    """Yield the files in a folder whose names a serialised model holds, those of folders that it names included."""
    for entry in folder.iterdir():
        if entry.name.encode() in model:
            if entry.is_dir():
                yield from _named_in(model, entry)
            else:
                yield entry


def _was_run(entry: Any) -> bool:
    return bool(entry.status == type(entry).EXECUTED and entry.node_type not in _OTHERS)


def _kernels(compiled: Any, runs: list[dict[str, float]]) -> list[Kernel]:
    """Return the kernels of a compiled model in the order in which they run, by the times of nodes in several runs."""
    found = []
    for node in sorted(compiled.get_runtime_model().get_ordered_ops(), key=_order):
        seconds = [run[node.get_friendly_name()] for run in runs if node.get_friendly_name() in run]
        if not seconds:
            continue
        info = node.get_rt_info()
        found.append({
            "name": node.get_friendly_name(), "op": _operator(_text(info["layerType"])), "us": 1e6 * median(seconds),
            "inputs": [_type(port.get_source_output()) for port in node.inputs()],
            "outputs": [_type(port) for port in node.outputs()],
        })  # fmt: skip
    return found


def _operator(kind: str) -> str:
    """Return the name that ONNX has for a type of nodes of a compiled model, where it has one for the same thing."""
    return {"Convolution": "Conv", "FullyConnected": "MatMul"}.get(kind, kind)


def _order(node: Any) -> int:
    return int(_text(node.get_rt_info()["execOrder"]))


def _text(value: Any) -> str:
    return str(value.astype(str) if hasattr(value, "astype") else value)


def _type(port: Any) -> tuple[str, list[int]]:
    return _element(port), list(port.get_shape()) if port.get_partial_shape().is_static else []


def _element(port: Any) -> str:
    name = str(port.get_element_type().get_type_name())
    return ELEMENTS.get(name, name)
