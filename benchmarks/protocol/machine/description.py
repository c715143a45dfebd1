"""The machine, the versions and the commit that results belong to, and the memory that is left."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from graph_rewrite.latency.device import cpu_flags, cpu_model, gpu_model
from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.system.huge_pages import pages_of_children

LIBRARIES = (
    "onnxruntime", "onnxruntime-gpu", "onnx", "onnx-ir", "numpy", "torch", "onnxsim", "onnxslim", "onnxscript",
    "openvino", "nvidia-cuda-runtime", "nvidia-cudnn-cu13",
)  # fmt: skip
COMMIT_VARIABLE = "REWRITEGYM_COMMIT"
_HOME = Path(__file__).resolve().parents[3]
RESERVE = 1 << 30
"""Bytes of memory that are left to the system."""
SPARE = 1.25
"""Times the size of the largest process so far that there must be for another."""


def machine(provider: str = "cpu") -> dict[str, Any]:
    """Return processor, instruction sets, cores, memory in bytes and system, as plain values; and the device that a
    provider runs on."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": cpu_model(), "cpu_flags": list(cpu_flags()), "cores": os.cpu_count(), "cores_allowed": allowed,
        "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "memory_pages": pages_of_children(),
        "platform": platform.platform(), **({} if PROVIDERS[provider].is_cpu else {"gpu": gpu_model()}),
    }  # fmt: skip


def machine_name(provider: str = "cpu") -> str:
    """Return a short name of the processor, or of the device that a provider runs on, that can be a folder's, such as
    `amd-epyc-25-17`."""
    device = cpu_model() if PROVIDERS[provider].is_cpu else gpu_model().rpartition(",")[0]
    text = re.sub(r"\(r\)|\(tm\)|processor|cpu family|stepping \d+|model|,|@.*", " ", device.lower())
    return re.sub(r"[^a-z0-9]+", "-", text).strip("-") or "unknown"


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that are installed."""
    found = {"python": platform.python_version()}
    for name in LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def commit() -> str:
    """Return the commit of this code, followed by `-dirty` where files differ from it. Outside a clone that is what the
    variable REWRITEGYM_COMMIT says, or `unknown`."""
    if COMMIT_VARIABLE in os.environ:
        return os.environ[COMMIT_VARIABLE]
    try:
        command = ["git", "-C", str(_HOME), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def available_memory() -> int:
    """Return the bytes of memory that processes may still take, on this machine and in this container; very many where
    the system does not tell."""
    found = [1 << 62]
    with suppress(OSError, ValueError, IndexError):
        lines = Path("/proc/meminfo").read_text().splitlines()
        found.append(next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:")))
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        limit = (group / "memory.max").read_text().strip()
        if limit != "max":
            found.append(int(limit) - int((group / "memory.current").read_text()))
    return min(found)


def room(size: int) -> int:
    """Return how many more processes of so many bytes fit into memory."""
    return max(0, int((available_memory() - RESERVE) / (SPARE * max(size, 1))))
