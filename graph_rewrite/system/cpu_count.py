"""How much may run side by side."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores that this process may use: what `taskset` or a container leaves it, where the system tells."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
