"""The roofline of a profiled model, condensed: work, limit, and the operators that hold the rest of the time.

Williams, Waterman and Patterson, "Roofline: An Insightful Visual Performance Model for Multicore Architectures", CACM
52(4), 2009.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from graph_rewrite.inspection.profile import Profile, TimedKernel
from graph_rewrite.inspection.roofline import Peaks, kernel_bytes, kernel_flops, least_us, operator_times

MOST_OPERATORS = 5
"""Operators that are named: those with the most time above their limit."""
_CONVOLUTIONS = ("Conv", "FusedConv")


def roof(profile: Profile, peaks: Peaks) -> dict[str, Any]:
    """Return what the roofline says of a profile.

    `gflop` and `gigabytes` are of one inference, `ms` its latency, `least_ms` what its kernels need at least,
    `compute_bound` the share of that which is arithmetic, and `rest` the operators with the most time above it.
    """
    least = min(profile.ms, sum(least_us(kernel, peaks) for kernel in profile.kernels) / 1e3)
    bound = sum(least_us(kernel, peaks) for kernel in profile.kernels if _is_compute_bound(kernel, peaks)) / 1e3
    return {
        "ms": profile.ms, "kernels_ms": profile.us / 1e3, "least_ms": least,
        "compute_bound": bound / least if least else 0.0,
        "gflop": sum(map(kernel_flops, profile.kernels)) / 1e9,
        "gigabytes": sum(map(kernel_bytes, profile.kernels)) / 1e9,
        "rest": rest(profile.kernels, peaks),
    }  # fmt: skip


def rest(kernels: Sequence[TimedKernel], peaks: Peaks) -> list[dict[str, Any]]:
    """Return the operators with the most time above the roofline: `rest_ms` of their `ms`, and the share of all time
    above it."""
    found = [(entry, entry.ms - (entry.least_ms or 0.0)) for entry in operator_times(kernels, peaks, shown_operator)]
    whole = sum(above for _, above in found)
    ordered = sorted(found, key=lambda pair: -pair[1])[:MOST_OPERATORS]
    return [
        {"operator": entry.operator, "kernels": entry.kernels, "ms": entry.ms, "rest_ms": above,
         "share": above / whole if whole else 0.0, "gflops": entry.gflops}
        for entry, above in ordered if above > 0.0
    ]  # fmt: skip


def distances(
    original: Mapping[str, Any], latencies: Mapping[str, float], ours: str = "", own: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Return for each contestant how far it is from the limit of the original's operations.

    `of_limit` is the original's `least_ms` over the latency: 1 is at the limit, and more than 1 is reached only with
    fewer operations. `effective_gflops` counts the original's operations, whatever is executed; `executed_gflops` those
    of the contestant's own graph, and `of_own_limit` compares with its own limit; both are None where that graph is not
    known.

    Args:
        latencies: milliseconds by contestant.
        ours: the contestant whose graph is `own`.
    """
    found = []
    for name, ms in latencies.items():
        graph = original if name == "original" else own if name == ours else None
        found.append({
            "contestant": name, "latency_ms": ms, "of_limit": original["least_ms"] / ms,
            "effective_gflops": 1e3 * original["gflop"] / ms,
            "executed_gflops": None if graph is None else 1e3 * graph["gflop"] / ms,
            "of_own_limit": None if graph is None else min(1.0, graph["least_ms"] / ms),
        })  # fmt: skip
    return found


def shown_operator(kernel: TimedKernel) -> str:
    """Return an operator's type; for a convolution with the size of its kernel, and with `grouped` where it is."""
    data, weight = (*kernel.inputs, None, None)[:2]
    if kernel.op not in _CONVOLUTIONS or weight is None or weight.rank < 3:
        return kernel.op
    size = "x".join(map(str, weight.shape[2:]))
    is_grouped = data is not None and data.rank == weight.rank and data.shape[1] > weight.shape[1]
    return f"{kernel.op} {size}{' grouped' if is_grouped else ''}"


def _is_compute_bound(kernel: TimedKernel, peaks: Peaks) -> bool:
    return kernel_flops(kernel) / peaks.gflops > kernel_bytes(kernel) / peaks.gigabytes
