"""The speed that a machine reaches at best: arithmetic and memory traffic of the simplest operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx

from graph_rewrite.errors import MachineError
from graph_rewrite.latency.models import matmul_model, streaming_model
from graph_rewrite.runtime import Deployment, FeedSpec, Plan, WorkerClient, WorkerFailure

_SIZE = 1024
_ELEMENTS, _ADDS = 1 << 15, 16
_PLAN = Plan(min_pairs=5, max_pairs=40, warmup=2, target_ci_width=0.0, budget_s=0.5)


def peak_gflops(worker: WorkerClient, folder: Path, deployment: Deployment) -> float:
    """Return the speed of a product of two fp32 matrices of 1024 x 1024, in 10**9 operations per second, best run.

    Raises:
        MachineError: ONNX Runtime fails at it.
    """
    seconds = _best(worker, folder / "matmul.onnx", matmul_model(_SIZE, constant=True), deployment)
    return 2 * _SIZE**3 / seconds / 1e9


def peak_gigabytes(worker: WorkerClient, folder: Path, deployment: Deployment) -> float:
    """Return the traffic of element-wise sums of vectors that lie in the cache, in 10**9 bytes per second, best run.

    No operator moves its operands faster, wherever they lie.

    Raises:
        MachineError: ONNX Runtime fails at it.
    """
    seconds = _best(worker, folder / "sums.onnx", streaming_model(_ELEMENTS, _ADDS), deployment)
    return 12 * _ELEMENTS * _ADDS / seconds / 1e9


def ask(
    worker: WorkerClient,
    request: dict[str, Any],
    error: type[MachineError] = MachineError,
    what: str = "ONNX Runtime fails on a small model",
) -> dict[str, Any]:
    """Send a request to a worker, and return the reply.

    Args:
        error, what: the exception where ONNX Runtime fails at it, and how its message begins.

    Raises:
        MachineError: ONNX Runtime fails at it.
    """
    try:
        reply = worker.request(request)
    except WorkerFailure as failure:
        raise error(f"{what}: {failure.message}") from failure
    if reply["status"] != "ok":
        raise error(f"{what}: {reply['message']}")
    return reply


def _best(worker: WorkerClient, path: Path, model: onnx.ModelProto, deployment: Deployment) -> float:
    path.write_bytes(model.SerializeToString())
    side = {"path": str(path), "deployment": deployment.to_request()}
    request = {"kind": "time", "candidate": side, "feeds": FeedSpec(rotated=()).to_json(), "plan": _PLAN.to_json()}
    return float(min(ask(worker, request)["samples"]))
