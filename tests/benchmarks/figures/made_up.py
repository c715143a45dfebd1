"""Made-up results files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def row(model: str, agent: str, speedup: float | None, seed: int | None = 0, **more: Any) -> dict[str, Any]:
    """A row as `benchmarks.results` writes it; without a speed-up one that failed."""
    failed = speedup is None
    return {
        "model": model, "agent": agent, "seed": seed, "budget_s": None if seed is None else 60.0,
        "speedup": speedup, "speedup_ci95": None if speedup is None else [0.98 * speedup, 1.02 * speedup],
        "baseline_ms": 12.0, "latency_ms": None if speedup is None else 12.0 / speedup, "seconds": 50.0,
        "measurements": 20, "verified": not failed, "max_rel_error": 2e-6, "size_growth": 1.5,
        "rewrites": [] if failed else [{"rule": "Winograd4x4", "sites": 3}], "failure": "", **more,
    }  # fmt: skip


def write_results(path: Path, rows: Sequence[dict[str, Any]], **more: Any) -> Path:
    """Write rows to a results file."""
    stored = {
        "machine": "Some CPU [avx2]", "versions": {"onnxruntime": "1.31.1"}, "commit": "0123456789abcdef",
        "protocol": {"sessions": 6}, "rows": list(rows), **more,
    }  # fmt: skip
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(stored))
    return path


def typical() -> list[dict[str, Any]]:
    """Two models, two agents of two seeds, one of which fails once, a peer that is missing, one that is not, and a
    control."""
    curve = [[5.0, 1.1], [30.0, 1.4]]
    return [
        *(row("bert", "regional", 1.5 + 0.1 * seed, seed, curve=curve) for seed in range(2)),
        *(row("vgg19", "regional", 2.0, seed, curve=curve) for seed in range(2)),
        row("bert", "greedy", 1.2),
        row("bert", "greedy", 1.3, 1, verified=False),
        row("vgg19", "greedy", 0.9, 0),
        row("vgg19", "greedy", None, 1, failure="it ended with -9: killed"),
        *(row(model, "openvino", 1.7, None) for model in ("bert", "vgg19")),
        *(row(model, "onnxslim", None, None, failure="onnxslim is not installed") for model in ("bert", "vgg19")),
        *(row(model, "original", 1.001, 0, kind="control") for model in ("bert", "vgg19")),
    ]
