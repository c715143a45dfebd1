"""Memory that is freed and taken again at every step, kept by the process meanwhile."""

from __future__ import annotations

import ctypes
import sys
from functools import cache

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
"""Parameters of glibc's mallopt (malloc.h)."""
_KEPT = 256 << 20
_LARGEST = 32 << 20


@cache
def keep_freed_memory() -> bool:
    """Let glibc keep up to 256 MB of freed memory, and take arrays of up to 32 MB from it; whether that was done.

    A forward pass takes and frees some MB per layer. By default glibc gives memory at the end of the heap back to the
    system each time, where nothing happens to lie behind it: 2,500 page faults a pass, which then takes 15 ms for 10.
    Once per process; elsewhere than on glibc nothing is done.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_TRIM_THRESHOLD, _KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST))
