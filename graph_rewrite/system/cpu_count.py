"""The number of cores, and whether others use them."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Return the number of cores that this process may use: those that `taskset` or a container leaves it, where the
    system tells, or else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def is_busy() -> bool:
    """Return whether other work keeps all cores of the machine busy: as many processes wanted one in the last minute as
    there are. False where the system does not tell."""
    if not hasattr(os, "getloadavg"):
        return False
    return os.getloadavg()[0] >= (os.cpu_count() or 1)
