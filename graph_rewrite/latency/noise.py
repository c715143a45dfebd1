"""The machine report of `rewritegym doctor`: speed, provider, and how far timings can be trusted."""

from __future__ import annotations

import math
import os
import platform
from importlib import metadata
from pathlib import Path
from statistics import median, stdev
from typing import Any

import onnxruntime as ort

from graph_rewrite.latency.device import cpu_flags, cpu_model, gpu_model
from graph_rewrite.latency.lock import MachineLock
from graph_rewrite.latency.models import noise_model
from graph_rewrite.latency.peaks import ask, peak_gflops
from graph_rewrite.latency.provider import resolve_provider
from graph_rewrite.runtime import Block, Deployment, FeedSpec, Plan, WorkerClient, estimate, log_ratios
from graph_rewrite.system.huge_pages import pages_of_children
from graph_rewrite.system.scratch import scratch_folder

_NOISE_PLAN = Plan(instances=6, min_instances=6, min_pairs=6, max_pairs=12, target_ci_width=0.0, budget_s=1.5)


def machine_report(*, lock_path: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Return provider, processor, versions, peak speed and noise of this machine, as plain values; takes some seconds.

    `peak_gflops`: fp32 matrix product of 1024 x 1024 on one CPU thread, best run. `noise`: a model of a few
    milliseconds against itself, in percent: `between_runs` is the standard deviation of single paired ratios within
    one pair of sessions, `between_instances` that of six pairs' medians, `largest` the furthest of those from zero;
    `ci95` is the interval of the speed-up, which should hold 1; it is taken with the provider that `auto` gives.
    Raises MachineError when ONNX Runtime fails at these.
    """
    provider = resolve_provider("auto")
    with WorkerClient() as worker, MachineLock(lock_path), scratch_folder("noise") as folder:
        peak, noise = (
            peak_gflops(worker, Path(folder), Deployment()),
            _noise(worker, Path(folder), Deployment(provider)),
        )
    return {
        "provider": provider,
        "providers": ort.get_available_providers(),
        "gpu": gpu_model() if provider == "cuda" else "none",
        "cpu": cpu_model(),
        "cpu_flags": list(cpu_flags()),
        "cores": os.cpu_count(),
        "platform": platform.platform(),
        "memory_pages": pages_of_children(),
        "versions": {"python": platform.python_version(), **_versions()},
        "peak_gflops": round(peak, 1),
        "noise": noise,
    }


def _versions() -> dict[str, str]:
    return {"onnxruntime": ort.__version__, "onnx": metadata.version("onnx"), "numpy": metadata.version("numpy")}


def _noise(worker: WorkerClient, folder: Path, deployment: Deployment) -> dict[str, Any]:
    path = folder / "noise.onnx"
    path.write_bytes(noise_model().SerializeToString())
    side = {"path": str(path), "deployment": deployment.to_json()}
    plans = {"feeds": FeedSpec().to_json(), "plan": _NOISE_PLAN.to_json()}
    reply = ask(worker, {"kind": "compare", "baseline": side, "candidate": side, **plans})
    blocks = [Block(tuple(left), tuple(right), repeats) for left, right, repeats in reply["blocks"]]
    ratios = [log_ratios(block) for block in blocks]
    centres = [median(sample) for sample in ratios]
    within = math.sqrt(sum(stdev(sample) ** 2 for sample in ratios) / len(ratios))
    found = estimate(blocks)
    return {
        "model_ms": round(1e3 * median(seconds for block in blocks for seconds in block.candidate), 3),
        "between_runs_percent": round(100 * within, 2),
        "between_instances_percent": round(100 * stdev(centres), 2),
        "largest_percent": round(100 * max(map(abs, centres)), 2),
        "ci95": [round(found.low, 4), round(found.high, 4)],
    }
