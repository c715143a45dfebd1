"""The number of cores."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of cores that this process may use: those that `taskset` or a container leaves it, where the
    system tells, or else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
