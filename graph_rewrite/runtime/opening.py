"""The check that ONNX Runtime opens a model, in a process that the model may crash."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SCRIPT = Path(__file__).with_name("opening_process.py")
_TIMEOUT_S = 60.0


def first_that_opens(models: Sequence[bytes]) -> int | None:
    """Return the position of the first of some serialised models that ONNX Runtime opens on the CPU, unoptimised; None
    where it opens none of them, crashes before, or takes longer than a minute."""
    with tempfile.TemporaryDirectory(prefix="rewritegym-opening-") as folder:
        paths = [Path(folder, f"{position}.onnx") for position in range(len(models))]
        for path, model in zip(paths, models, strict=True):
            path.write_bytes(model)
        # -P keeps modules in this package from shadowing others.
        command = [sys.executable, "-P", str(_SCRIPT), *map(str, paths)]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return None
    answers = ended.stdout.split()
    return answers.index("opens") if "opens" in answers else None
