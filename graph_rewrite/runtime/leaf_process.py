"""Processes that run modules of `ort_worker`: commands and environments that start them, waiting, and their end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from graph_rewrite.runtime.ort_worker.following import PARENT
from graph_rewrite.system.deadline import POLL_S, OutOfTime, check_time, current_end, is_shortened, seconds_left
from graph_rewrite.system.huge_pages import with_huge_pages

_HOME = Path(__file__).resolve().parent


def leaf_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Return the command line that runs `module` (`ort_worker`, or one of its modules) with this interpreter."""
    # -P keeps modules in the current directory from shadowing ours.
    return [sys.executable, "-P", "-m", module, *arguments]


def leaf_environment() -> dict[str, str]:
    """Return this process's environment, in which `ort_worker` is found as a top-level package: these very files. What
    is started in it ends with this process, and asks for huge pages: with small ones, where weights happen to lie
    decides how fast a model reads them."""
    paths = [str(_HOME), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return with_huge_pages({**os.environ, "PYTHONPATH": os.pathsep.join(paths), PARENT: str(os.getpid())})


def start_leaf(command: Sequence[str], **options: Any) -> subprocess.Popen[Any]:
    """Start a command with `leaf_environment`, and options of `subprocess.Popen`. Ctrl-C and SIGTERM, which terminals
    and process managers send to whole groups, never reach it: not even before it can ignore them."""
    if not hasattr(signal, "pthread_sigmask"):
        return subprocess.Popen(command, env=leaf_environment(), **options)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        return subprocess.Popen(command, env=leaf_environment(), **options)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class LimitBroughtForward(OutOfTime):
    """The time limit was brought forward while a process ran that had been told of the old one. Some time is left."""


def run_leaf(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a command with `leaf_environment` to its end, and return what it printed.

    Raises:
        TimeoutExpired: it takes longer; it is killed then, as with the other exceptions.
        LimitBroughtForward: the time limit of the run was brought forward, and is not reached yet.
        OutOfTime: the time limit of the run is reached.
    """
    check_time()
    ends, told_end = time.monotonic() + timeout_s, current_end()
    pipe = subprocess.PIPE
    with start_leaf(command, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            while True:
                patience = min(ends - time.monotonic(), seconds_left())
                try:
                    output, errors = process.communicate(timeout=max(0.0, min(patience, POLL_S)))
                except subprocess.TimeoutExpired:
                    check_time()
                    if is_shortened(told_end):
                        raise LimitBroughtForward("the time limit was brought forward") from None
                    if time.monotonic() >= ends:
                        raise
                else:
                    return subprocess.CompletedProcess(command, process.returncode, output, errors)
        except BaseException:
            process.kill()
            raise


def describe_exit(code: int) -> str:
    """Return the exit status of a process in words: the signal's name where a signal ended it."""
    if code >= 0:
        return f"exit status {code}"
    try:
        return signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
