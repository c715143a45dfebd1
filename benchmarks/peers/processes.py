"""Preparation of a model by a peer, in a process of its own with a time limit."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.peers.errors import FailedPeer, MissingPeer
from benchmarks.protocol.machine.processes import child_environment, ending_with_us
from graph_rewrite.runtime.leaf_process import describe_exit

PREPARE_S = 600.0
"""Seconds that an optimiser may take for a model."""
_MESSAGE_CHARACTERS = 400


def prepare_apart(
    name: str, task: str, model: Path, folder: Path, threads: int, timeout_s: float = PREPARE_S
) -> dict[str, Any]:
    """Run a task of a peer in a process of its own, and return what it returns.

    The process works in `folder`, made if need be; `prepare.log` there holds what it prints. It and its children are
    killed at the time limit, and when this function is left by an exception.

    Args:
        name: the peer, for messages.
        task: `module:function`, with `function(model, folder, threads) -> dict` of values that JSON holds.

    Raises:
        MissingPeer: the task raised it.
        FailedPeer: the process crashed, raised any other exception, or took longer than `timeout_s` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    answer = folder / "answer.json"
    answer.unlink(missing_ok=True)
    request = {
        "task": task, "model": str(model.resolve()), "folder": str(folder.resolve()), "threads": threads,
        "parent": os.getpid(), "answer": str(answer.resolve()),
    }  # fmt: skip
    command = [sys.executable, "-P", "-m", "benchmarks.peers.preparation", json.dumps(request)]
    log = folder / "prepare.log"
    with log.open("wb") as printed:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=printed, stderr=printed, cwd=folder,
            env=child_environment(threads), start_new_session=True,
        )  # fmt: skip
        with ending_with_us(process):
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                raise FailedPeer(f"{name} was not ready after {timeout_s:g} s") from None
    if code or not answer.is_file():
        raise FailedPeer(f"{name} failed with {describe_exit(code)}{_last_words(log)}")
    found: dict[str, Any] = json.loads(answer.read_text("utf-8"))
    if "missing" in found:
        raise MissingPeer(f"{name}: {found['missing']}")
    made: dict[str, Any] = found["made"]
    return made


def _last_words(log: Path) -> str:
    """Return the last line that a process printed: of a traceback that is the exception."""
    lines = [line.strip() for line in log.read_text("utf-8", errors="replace").splitlines() if line.strip()]
    return f": {lines[-1][:_MESSAGE_CHARACTERS]}" if lines else ""
