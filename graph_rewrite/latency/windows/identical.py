"""Models that ONNX Runtime optimises to the same operators: a difference that is timed between them is noise.

Its optimisers undo much of what rules do (transposes that cancel, forms of one activation), as far as a deployment lets
them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from graph_rewrite.latency.windows.window import shape_key
from graph_rewrite.onnx_files.external_data import ModelLoadError
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.runtime import Deployment, WorkerClient, WorkerFailure


def run_alike(worker: WorkerClient, files: Iterable[tuple[Path, Deployment]]) -> bool:
    """Return whether ONNX Runtime runs the same operators on the same shapes for all of these models, each as it is
    deployed, whatever their weights; False where that cannot be told."""
    keys = {_optimised_key(worker, path, deployment) for path, deployment in files}
    return len(keys) == 1 and None not in keys


def _optimised_key(worker: WorkerClient, path: Path, deployment: Deployment) -> str | None:
    written = path.with_suffix(".optimised.onnx")
    candidate = {"path": str(path), "deployment": deployment.to_request()}
    try:
        reply = worker.request({"kind": "optimised", "candidate": candidate, "written": str(written)})
        return shape_key(load(written)) if reply["status"] == "ok" else None
    except (WorkerFailure, ModelLoadError, OSError):
        return None
    finally:
        written.unlink(missing_ok=True)
