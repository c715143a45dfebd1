"""Names of the hardware that a latency belongs to."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from functools import cache
from pathlib import Path

from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.system.huge_pages import are_asked_for

ISA_FLAGS = (
    "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "avx_vnni", "amx_tile", "amx_bf16",
    "amx_int8", "asimd", "asimddp", "asimdhp", "i8mm", "bf16", "sve", "sve2",
)  # fmt: skip
"""Instruction sets that decide which kernels ONNX Runtime's CPU provider picks."""

_INTELS_FAMILY = "cpu family 6"
_IDENTITY_FIELDS = ("model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")


@cache
def _cpuinfo() -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo; empty where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text(encoding="utf-8", errors="replace").split("\n\n")[0]
    pairs = (line.partition(":") for line in first.splitlines())
    return {key.strip(): value.strip() for key, _, value in pairs}


@cache
def cpu_flags() -> tuple[str, ...]:
    """Return those of `ISA_FLAGS` that the processor reports; empty where the system does not say."""
    fields = _cpuinfo()
    reported = set((fields.get("flags") or fields.get("Features") or "").split())
    return tuple(flag for flag in ISA_FLAGS if flag in reported)


@cache
def cpu_model() -> str:
    """Return the processor's name, with family and stepping, since virtual machines often hide the model."""
    fields = _cpuinfo()
    if fields:
        parts = [fields[name] if name == "model name" else f"{name} {fields[name]}"
                 for name in _IDENTITY_FIELDS if name in fields]  # fmt: skip
        return ", ".join(parts) or platform.machine()
    if sys.platform == "darwin":
        return _first_line(["sysctl", "-n", "machdep.cpu.brand_string"]) or platform.machine()
    return platform.processor() or platform.machine()


@cache
def gpu_model() -> str:
    """Return name and driver of the first visible NVIDIA device, or `unknown` where nvidia-smi does not answer."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip() or "0"
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader", "-i", first]
    return _first_line(query) or "unknown"


def device_name(provider: str) -> str:
    """Return the name of the hardware that `provider` runs on; the processor belongs to all."""
    cpu = f"{cpu_model()} [{' '.join(cpu_flags())}]"
    return cpu if PROVIDERS[provider].is_cpu else f"{gpu_model()} on {cpu}"


def instruction_sets(device: str) -> frozenset[str]:
    """Return those of `ISA_FLAGS` that the processor in a device's name has, as `device_name` returns it."""
    return frozenset(device.rpartition(" [")[2].removesuffix("]").split()) & set(ISA_FLAGS)


def device_key(provider: str) -> dict[str, str]:
    """Return what measurements on this machine are kept under: its hardware, and huge pages where it must be asked."""
    return {"device": device_name(provider), **({"memory_pages": "huge"} if are_asked_for() else {})}


def processor_kind(device: str = "") -> str:
    """Return the part of a device's name by which rewrites pay alike: vendor or family, and instruction sets, without
    model and stepping. Intel's processors are all of one family: of these the model counts too.

    Args:
        device: as `device_name` returns it; by default that of this machine's processor.
    """
    name, _, flags = (device or device_name("cpu")).rpartition(" on ")[2].partition(" [")
    parts = [part.strip() for part in name.split(",")]
    telling = ("cpu family", "CPU part", *(("model ",) if _INTELS_FAMILY in parts else ()))
    family = [part for part in parts if part.startswith(telling)] or parts[:1]
    return f"{', '.join(family)} [{flags}"


def machine_kind(provider: str, device: str = "") -> str:
    """Return where rewrites pay alike: the kind of processor, and before it the runtime if that is not ONNX Runtime. Of
    a device that is no CPU that is its name, without the driver.

    Args:
        provider: the provider of the runtime.
        device: as `device_name` returns it for the provider; by default that of this machine.
    """
    if not PROVIDERS[provider].is_cpu:
        return f"{provider} on {(device or device_name(provider)).partition(' on ')[0].partition(',')[0]}"
    processor = processor_kind(device)
    return processor if PROVIDERS[provider].is_onnxruntime else f"{provider} on {processor}"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip().partition("\n")[0]
