"""The roofline of a profiled model: the time that its kernels need at least by their operations and bytes.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", CACM
52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from graph_rewrite.inspection.profile import TimedKernel
from graph_rewrite.ir.tensor_type import TensorType
from graph_rewrite.latency.peaks import peak_gflops, peak_gigabytes
from graph_rewrite.operators.work import estimate_flops, tensor_bytes, touched
from graph_rewrite.runtime import Deployment, WorkerClient

_PRODUCTS = frozenset({"MatMul", "Gemm", "FusedMatMul", "FusedGemm"})
_VIEWS = frozenset({"Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity"})
"""Operators that ONNX Runtime may carry out without moving anything."""


@dataclass(frozen=True)
class Peaks:
    """The best speed of a machine under a deployment: 10**9 floating-point operations and bytes per second."""

    gflops: float
    gigabytes: float


def measure_peaks(deployment: Deployment, worker: WorkerClient, folder: Path) -> Peaks:
    """Measure the peaks of this machine; takes two seconds at most.

    Raises:
        MachineError: ONNX Runtime fails on a small model.
    """
    return Peaks(peak_gflops(worker, folder, deployment), peak_gigabytes(worker, folder, deployment))


def kernel_flops(kernel: TimedKernel) -> float:
    """Return the floating-point operations of a kernel; 0 where the shapes of its results are unknown."""
    whole = _with_weight(kernel)
    return estimate_flops(whole, whole.inputs, whole.outputs)


def kernel_bytes(kernel: TimedKernel) -> int:
    """Return the bytes that a kernel reads and writes, each operand and result once; 0 for one that moves nothing."""
    if kernel.op in _VIEWS:
        return 0
    whole = _with_weight(kernel)
    return sum(map(tensor_bytes, touched(whole, whole.inputs, whole.outputs)))


def least_us(kernel: TimedKernel, peaks: Peaks) -> float:
    """Return the microseconds that a kernel needs at least: for its operations or for its bytes, whichever is more.

    It is never more than the kernel took: where it was faster than the peaks, those were measured too low.
    """
    roof = max(kernel_flops(kernel) / peaks.gflops, kernel_bytes(kernel) / peaks.gigabytes) / 1e3
    return min(roof, kernel.us)


@dataclass(frozen=True)
class OperatorTime:
    """Kernels of one operator: their number, their time per run in milliseconds, their share of the time of all
    kernels, and what the roofline leaves of that time. `least_ms` is None where peaks were not measured."""

    operator: str
    kernels: int
    ms: float
    share: float
    gflops: float
    """Speed in 10**9 floating-point operations per second, estimated from shapes."""
    least_ms: float | None


def operator_times(
    kernels: Sequence[TimedKernel], peaks: Peaks | None, name: Callable[[TimedKernel], str] = lambda kernel: kernel.op
) -> list[OperatorTime]:
    """Return the time by operator, the most expensive first.

    Args:
        name: groups kernels; by the operator's type unless told otherwise.
    """
    total = sum(kernel.us for kernel in kernels) or 1.0
    groups: dict[str, list[TimedKernel]] = {}
    for kernel in kernels:
        groups.setdefault(name(kernel), []).append(kernel)
    found = []
    for operator, group in groups.items():
        us, flops = sum(kernel.us for kernel in group), sum(map(kernel_flops, group))
        least = None if peaks is None else sum(least_us(kernel, peaks) for kernel in group) / 1e3
        found.append(OperatorTime(operator, len(group), us / 1e3, us / total, flops / us / 1e3 if us else 0.0, least))
    return sorted(found, key=lambda entry: -entry.ms)


def _with_weight(kernel: TimedKernel) -> TimedKernel:
    """Return a matrix product with the weight that ONNX Runtime has packed, and does not list."""
    first, second = (*kernel.inputs, None, None)[:2]
    if kernel.op not in _PRODUCTS or first is None or (second is not None and second.rank > 1) or not first.rank:
        return kernel
    columns = kernel.outputs[0].shape[-1:] if kernel.outputs and kernel.outputs[0] is not None else (1,)
    weight = TensorType(first.dtype, (first.shape[-1], *columns))
    return replace(kernel, inputs=(first, weight, *kernel.inputs[1:]))
