"""The start of a program, from which its time limit counts.

Importing this module takes a few milliseconds, so that a program can begin with it.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_FIRST = time.monotonic()
MOST_STARTUP_S = 5.0
"""Seconds that Python may take before this module. A process that is older ran something else before, as after `exec`
in a shell script."""
_STAT = Path("/proc/self/stat")


def program_began() -> float:
    """Return the moment of `time.monotonic` at which this program began: the start of its process where the system
    tells it, or else the import of this module."""
    try:
        ticks = int(_STAT.read_text().rpartition(")")[2].split()[19])  # field 22 of proc(5), behind the name
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):  # not Linux
        return _FIRST
    started = time.monotonic() - age
    return started if _FIRST - MOST_STARTUP_S <= started <= _FIRST else _FIRST
