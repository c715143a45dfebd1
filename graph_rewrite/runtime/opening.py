"""The check that ONNX Runtime opens a model, in a process that the model may crash."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from graph_rewrite.runtime.leaf_process import leaf_command, run_leaf
from graph_rewrite.runtime.ort_worker.trials.opening import LIBRARY
from graph_rewrite.system.scratch import scratch_folder

_TIMEOUT_S = 60.0


def first_that_opens(models: Sequence[bytes], libraries: Sequence[str] = ()) -> int | None:
    """Return the position of the first of some serialised models that ONNX Runtime opens on the CPU, unoptimised; None
    where it opens none of them, crashes before, or takes longer than a minute.

    Args:
        libraries: libraries with operators of custom domains, loaded by that process alone.

    Raises:
        OutOfTime: the time limit of the run is reached.
    """
    with scratch_folder("opening") as folder:
        paths = [Path(folder, f"{position}.onnx") for position in range(len(models))]
        for path, model in zip(paths, models, strict=True):
            path.write_bytes(model)
        try:
            arguments = [*(f"{LIBRARY}{library}" for library in libraries), *map(str, paths)]
            ended = run_leaf(leaf_command("ort_worker.trials.opening", arguments), _TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
    answers = ended.stdout.split()
    return answers.index("opens") if "opens" in answers else None
