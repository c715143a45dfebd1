"""The time that a model takes to load, and the memory of a process that runs it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass

from graph_rewrite.runtime import Deployment, FeedSpec
from graph_rewrite.runtime.leaf_process import leaf_command, run_leaf


@dataclass(frozen=True, slots=True)
class ModelFootprint:
    """A model in a process of its own, opened and run once."""

    load_s: float
    """Seconds to open a session."""
    peak_bytes: int
    """The most memory that the process held, Python and ONNX Runtime included."""


def footprint(
    path: str | os.PathLike[str],
    deployment: Deployment,
    feeds: FeedSpec,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    timeout_s: float = 60.0,
) -> ModelFootprint | None:
    """Open and run a model file once, as deployed. None where that fails or takes longer than `timeout_s` seconds.

    Args:
        shapes: shapes of inputs by name, for those with symbolic dimensions.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    request = {
        "model": os.fspath(path), "deployment": deployment.to_request(), "feeds": feeds.to_json(),
        "shapes": dict(shapes or {}),
    }  # fmt: skip
    command = leaf_command("ort_worker.footprint", [json.dumps(request)])
    try:
        ended = run_leaf(command, timeout_s)
    except subprocess.TimeoutExpired:
        return None
    return ModelFootprint(**json.loads(ended.stdout.splitlines()[-1])) if ended.returncode == 0 else None
