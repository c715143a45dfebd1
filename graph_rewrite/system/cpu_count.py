"""The number of cores, whether others use them, and the number of threads that may be asked for."""

from __future__ import annotations

import os
from pathlib import Path

from graph_rewrite.errors import UserError

_CPUS, _SIBLINGS = Path("/sys/devices/system/cpu"), "topology/thread_siblings_list"
"""The folder of Linux that tells of each logical core, and the file there with those that share its hardware."""


def available_cores() -> int:
    """Return the number of logical cores that this process may use: those that `taskset` or a container leaves it,
    where the system tells, or else all."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def physical_cores() -> int:
    """Return the number of physical cores among those that this process may use: the number of threads that ONNX
    Runtime takes by default. Where the system does not tell which cores share hardware, each counts."""
    try:
        shared = {_CPUS.joinpath(f"cpu{cpu}", _SIBLINGS).read_text().strip() for cpu in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # not Linux, or a container that hides it
        return available_cores()
    return len(shared)


def check_threads(threads: int) -> int:
    """Return a number of threads that a user asks for with `--threads`. More than cores would wait for each other, and
    a run could take minutes.

    Raises:
        UserError: less than one, or more than this process may use cores.
    """
    if threads < 1:
        raise UserError(f"--threads {threads}: threads must be at least 1; leave the flag out for the default")
    cores = available_cores()
    if threads > cores:
        raise UserError(
            f"--threads {threads}: this process may use {cores} core{'s' if cores > 1 else ''}; measure with the number"
            " of threads that will be deployed, on a machine that has them"
        )
    return threads


def threads_in_words(count: int) -> str:
    """Return a number of threads with its noun, such as "1 thread"."""
    return f"{count} thread{'' if count == 1 else 's'}"


def is_busy() -> bool:
    """Return whether other work keeps all cores of the machine busy: as many processes wanted one in the last minute as
    there are. False where the system does not tell."""
    if not hasattr(os, "getloadavg"):
        return False
    return os.getloadavg()[0] >= (os.cpu_count() or 1)
