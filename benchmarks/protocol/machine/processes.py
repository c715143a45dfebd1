"""Processes of a benchmark: their environment, their cores, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from graph_rewrite.system.huge_pages import with_huge_pages

_HOME = Path(__file__).resolve().parents[3]
_SIBLINGS = "/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list"
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_PATIENCE_S = 5.0


def child_environment(threads: int) -> dict[str, str]:
    """Return this process's environment for a child that imports the same code, with so many threads for libraries and
    with huge pages where the system grants them."""
    paths = [str(_HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    variables = {"PYTHONPATH": os.pathsep.join(paths), **dict.fromkeys(_THREAD_VARIABLES, str(threads))}
    return with_huge_pages({**os.environ, **variables})


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Pin this thread to cores, so that a process started inside is pinned from its first moment. Nothing happens
    without cores, or where the system cannot."""
    if not cores or not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def ending_with_us(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End a process, and those that it has started in its session, when the block is left: after Ctrl-C too."""
    try:
        yield
    finally:
        if process.poll() is None:
            _signal(process, signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):
                process.wait(_PATIENCE_S)
        _signal(process, signal.SIGKILL)
        process.wait()


def _signal(process: subprocess.Popen[Any], number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


def cores_for(count: int, allowed: Sequence[int] | None = None) -> tuple[int, ...]:
    """Return the cores for so many threads: of different physical cores as far as there are, the last ones first, since
    the first of a machine answers most interrupts. Fewer where this process may not use that many.

    Args:
        allowed: the cores to choose from; by default those that this process may use.
    """
    if allowed is None:
        allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    by_group: dict[str, list[int]] = {}
    for core in sorted(allowed, reverse=True):
        by_group.setdefault(_siblings(core), []).append(core)
    ordered = [group[place] for place in range(len(allowed)) for group in by_group.values() if place < len(group)]
    return tuple(sorted(ordered[:count]))


def _siblings(core: int) -> str:
    try:
        return Path(_SIBLINGS.format(core)).read_text().strip()
    except OSError:
        return str(core)
