"""A process that belongs to another: it ends when that one is gone, and leaves signals to it."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time

PARENT = "REWRITEGYM_PARENT"
"""Environment variable with the number of the process that a leaf process belongs to."""

_WATCH_S = 1.0


def follow(parent: int | None = None) -> None:
    """Leave Ctrl-C and SIGTERM to the parent, and end this process once the parent is gone, even while a model hangs.

    A terminal sends Ctrl-C to the whole group, and Slurm sends SIGTERM to all processes of a job; the parent decides
    when this one ends. PR_SET_PDEATHSIG would not do: it fires when the thread that started a process ends.

    Args:
        parent: number of the parent; by default that of the environment.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    named = os.environ.get(PARENT, "") if parent is None else str(parent)
    if sys.platform != "win32" and named.isdigit():
        threading.Thread(target=_watch, args=(int(named),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_WATCH_S)
    os._exit(1)
