"""The lock around everything that is timed: one per machine, so that measurements never disturb each other.

It does without `filelock`, whose releases 3 truncate the file with every attempt to take the lock: that erases the
holder's process id, which the message of a timeout names.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from graph_rewrite.errors import MachineError
from graph_rewrite.system.deadline import POLL_S, check_time

if sys.platform == "win32":
    import msvcrt

    # Locking a byte beyond the text keeps the holder's process id readable for those who wait.
    _LOCKED_BYTE = 1 << 20

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.002, 0.05


class LockTimeout(MachineError, TimeoutError):
    """Another process held the measurement lock for too long; the message names it."""


@dataclass
class _State:
    """The state of one lock file in this process, shared by all `MachineLock` objects on it."""

    mutex: threading.RLock = field(default_factory=threading.RLock)
    depth: int = 0
    descriptor: int = -1


_waited = 0.0
_states: dict[str, _State] = {}
_states_mutex = threading.Lock()


def unblocked_time() -> float:
    """Return the seconds of a monotonic clock that stands still while this process waits for measurements of others."""
    return time.monotonic() - _waited


def waited_seconds() -> float:
    """Return the seconds that this process has waited for measurements of others so far."""
    return _waited


def default_lock_path() -> Path:
    return Path(tempfile.gettempdir()) / "rewritegym-measure.lock"


class MachineLock:
    """A lock that all processes and threads of this machine share; a context manager.

    The thread that holds it may take it again. `timeout_s` bounds the waiting, after which LockTimeout names the
    process that holds it. The system frees the lock of a process that dies. The time limit of a run
    (`graph_rewrite.system.deadline`) ends the waiting with OutOfTime.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, timeout_s: float = 1800.0) -> None:
        self.path = Path(path) if path is not None else default_lock_path()
        self.timeout_s = timeout_s

    def __enter__(self) -> Self:
        state = self._state()
        deadline = time.monotonic() + self.timeout_s
        while not state.mutex.acquire(timeout=max(0.0, min(POLL_S, deadline - time.monotonic()))):
            check_time()
            if time.monotonic() >= deadline:
                raise LockTimeout(self._timeout_message(os.getpid()))
        try:
            if state.depth == 0:
                state.descriptor = self._acquire(deadline)
            state.depth += 1
        except BaseException:
            state.mutex.release()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        state = self._state()
        state.depth -= 1
        if state.depth == 0:
            _unlock(state.descriptor)
            os.close(state.descriptor)
            state.descriptor = -1
        state.mutex.release()

    def _state(self) -> _State:
        with _states_mutex:
            return _states.setdefault(os.path.realpath(self.path), _State())

    def _acquire(self, deadline: float) -> int:
        global _waited
        descriptor = _open_shared(self.path)
        pause, counted = _FIRST_PAUSE_S, time.monotonic()
        try:
            while not _try_lock(descriptor):
                check_time()
                if time.monotonic() >= deadline:
                    raise LockTimeout(self._timeout_message(_read_holder(descriptor)))
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_S)
                _waited, counted = _waited + time.monotonic() - counted, time.monotonic()
            _write_holder(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _timeout_message(self, holder: int | None) -> str:
        who = f"process {holder}" if holder is not None else "another process"
        return (
            f"{who} has held the measurement lock {self.path} for more than {self.timeout_s:g} s;"
            " wait for it, end it, or give this run a lock_path of its own and accept noisier latencies"
        )


def _open_shared(path: Path) -> int:
    """Open the lock file for all users of the machine.

    First without O_CREAT: in a sticky directory Linux refuses O_CREAT on another user's file (fs.protected_regular).
    """
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, flags | os.O_CREAT, 0o666)
    if hasattr(os, "fchmod") and os.fstat(descriptor).st_uid == os.getuid():
        os.fchmod(descriptor, 0o666)  # whatever the umask says
    return descriptor


def _write_holder(descriptor: int) -> None:
    try:
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).encode())
    except OSError:
        return  # a full disk: the lock holds all the same, only a timeout message will not name the holder


def _read_holder(descriptor: int) -> int | None:
    os.lseek(descriptor, 0, os.SEEK_SET)
    text = os.read(descriptor, 32).strip()
    return int(text) if text.isdigit() else None


def _forget_after_fork() -> None:
    """Close the parent's descriptors in a forked child, which leaves the parent's lock alone."""
    global _states_mutex
    _states_mutex = threading.Lock()
    for state in _states.values():
        if state.descriptor >= 0:
            os.close(state.descriptor)
    _states.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
