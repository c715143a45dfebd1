"""The number of cores, whether others use them, and the number of threads that may be asked for."""

from __future__ import annotations

import functools
import math
import os
import sys
from pathlib import Path

from graph_rewrite.errors import UserError

_GROUPS, _OWN_GROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")
"""The control groups of Linux, and the list of those that this process belongs to."""
_CPUS, _SIBLINGS = Path("/sys/devices/system/cpu"), "topology/thread_siblings_list"
"""The folder of Linux that tells of each logical core, and the file there with those that share its hardware."""


def available_cores() -> int:
    """Return the number of logical cores that this process may use: those that `taskset` leaves it, and no more than
    the time that a container has for it (`docker run --cpus`), where the system tells, or else all."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(cores, _within_quota(_GROUPS, _OWN_GROUPS))


def physical_cores() -> int:
    """Return the number of physical cores among those that this process may use: the number of threads that ONNX
    Runtime takes by default. Where the system does not tell which cores share hardware, each counts."""
    try:
        shared = {_CPUS.joinpath(f"cpu{cpu}", _SIBLINGS).read_text().strip() for cpu in os.sched_getaffinity(0)}
    except (OSError, AttributeError):  # not Linux, or a container that hides it
        return available_cores()
    return min(len(shared), available_cores())


@functools.cache
def _within_quota(groups: Path, own: Path) -> int:
    """Return the whole cores whose time the control groups of this process leave it (cgroups(7)); without a limit, or
    where the system has no such groups, more than any machine has."""
    least = math.inf
    try:
        entries = [line.split(":", 2) for line in own.read_text().splitlines()]
    except OSError:
        entries = []
    for _, controllers, path in entries:
        if controllers and "cpu" not in controllers.split(","):
            continue
        root = groups / controllers if controllers else groups
        inside = root / path.lstrip("/")
        for folder in (inside, *inside.parents):
            least = min(least, _cores_of(folder))
            if folder == root:
                break
    return max(1, int(least)) if math.isfinite(least) else sys.maxsize


def _cores_of(group: Path) -> float:
    """Return the cores' worth of time that one control group may use; infinite without a limit."""
    try:
        if (limit := group / "cpu.max").exists():
            quota, period = limit.read_text().split()
        else:
            quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota) / int(period) if int(quota) > 0 else math.inf
    except (OSError, ValueError, ZeroDivisionError):  # no such limit, or "max"
        return math.inf


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
