"""Commands and environments that start modules of `ort_worker` as processes, and a description of their end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

_HOME = Path(__file__).resolve().parent


def leaf_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `module` (`ort_worker`, or one of its modules) with this interpreter."""
    # -P keeps modules in the current directory from shadowing ours.
    return [sys.executable, "-P", "-m", module, *arguments]


def leaf_environment() -> dict[str, str]:
    """Return this process's environment, in which `ort_worker` is found as a top-level package: these very files."""
    paths = [str(_HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def describe_exit(code: int) -> str:
    """Return the exit status of a process in words: the signal's name where a signal ended it."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
