"""The parent's end of a measurement worker: starts it, talks to it, kills it when it hangs."""

from __future__ import annotations

import math
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from types import TracebackType
from typing import IO, Any, Literal, Self

from graph_rewrite.errors import MachineError
from graph_rewrite.runtime.leaf_process import describe_exit, leaf_command, start_leaf
from graph_rewrite.runtime.ort_worker.wire import Message, read_message, write_message
from graph_rewrite.system.deadline import POLL_S, check_time, current_end, is_shortened, seconds_left

Status = Literal["ok", "crash", "hang", "oom", "error"]
"""The outcome of a request: `ok`, or the kind of failure."""

_START_TIMEOUT_S = 120.0  # importing onnxruntime from a cold disk, on a busy machine
_END_TIMEOUT_S = 10.0  # from closing its pipe to being gone; writing a core file takes a while
_STDERR_LINES = 40


class WorkerStartError(MachineError):
    """No worker can be started on this machine, whatever the model; the message says what to check."""


class WorkerFailure(Exception):
    """A request was not answered: the worker crashed, hung or was killed. `phase` is what it was doing."""

    def __init__(self, status: Status, phase: str, message: str) -> None:
        super().__init__(message)
        self.status: Status = status
        self.phase = phase
        self.message = message


class _Shortened(Exception):
    """The time limit was brought forward while a request ran that was told of the old one."""


class _Process:
    """One running worker, with threads that drain its pipes (portable, and no pipe can fill up and block it)."""

    def __init__(self, memory_limit_mb: int | None) -> None:
        arguments = ["--parent", str(os.getpid())]
        if memory_limit_mb is not None:
            arguments += ["--memory-limit-mb", str(memory_limit_mb)]
        command, pipe = leaf_command("ort_worker", arguments), subprocess.PIPE
        self.popen = start_leaf(command, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        self.messages: queue.SimpleQueue[Message | None] = queue.SimpleQueue()
        self.printed: deque[str] = deque(maxlen=_STDERR_LINES)
        stdin, stdout, stderr = self.popen.stdin, self.popen.stdout, self.popen.stderr
        assert stdin is not None
        self.stdin: IO[bytes] = stdin
        self._readers = [
            threading.Thread(target=_read_all, args=(stdout, self.messages), daemon=True),
            threading.Thread(target=_read_lines, args=(stderr, self.printed), daemon=True),
        ]
        for reader in self._readers:
            reader.start()

    def last_words(self) -> str:
        """Return the end of what the worker printed; complete only once it has ended."""
        if self.popen.poll() is not None:
            self._readers[1].join(timeout=1.0)
        return " / ".join(list(self.printed)[-5:])

    def stop(self, grace_s: float) -> None:
        """End the process: by closing its channel, and after `grace_s` seconds by force."""
        self.stdin.close()
        try:
            self.popen.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            self.popen.kill()
            self.popen.wait()
        for reader in self._readers:
            reader.join(timeout=1.0)


class WorkerClient:
    """Sends requests to a worker process of its own, started at the first request.

    `timeout_s` is how long the worker may go without progress: it reports each phase (opening a model, warming up,
    timing) as it begins, and says how long a timing should take at most. `memory_limit_mb` limits the worker's
    address space (POSIX, CPU only: a CUDA process maps far more than it uses).

    Safe to use from several threads. After a fork and after pickling the copy starts a worker of its own.
    """

    def __init__(self, *, timeout_s: float = 30.0, memory_limit_mb: int | None = None) -> None:
        if timeout_s <= 0:
            raise ValueError(f"WorkerClient: timeout_s must be positive, got {timeout_s}")
        self.timeout_s = timeout_s
        self.memory_limit_mb = memory_limit_mb
        self.starts = 0
        """Number of worker processes that were started so far."""
        self._process: _Process | None = None
        self._owner = os.getpid()
        self._finalizer: weakref.finalize[Any, Any] | None = None
        self._mutex = threading.Lock()

    @property
    def pid(self) -> int | None:
        """Process id of the running worker, None when there is none."""
        return self._process.popen.pid if self._process is not None and self._owner == os.getpid() else None

    def request(self, message: Message) -> Message:
        """Send `message` and return the reply.

        Where the run has a time limit, the worker is told how much of it is left, and is killed at its end. Where the
        limit is brought forward meanwhile, it is killed and asked anew, with the time that is left now.

        Raises:
            WorkerFailure: the worker crashed, hung or was killed.
            WorkerStartError: no worker starts.
            OutOfTime: the time limit of the run is reached.
        """
        check_time()
        if self._owner != os.getpid():  # forked: the worker, its pipes and the mutex are the parent's
            self._mutex, self._process, self._finalizer = threading.Lock(), None, None
            self._owner = os.getpid()
        with self._mutex:
            try:
                return self._exchange(message)
            except OSError:
                pass
            except WorkerFailure as failure:
                if failure.phase or failure.status == "hang":
                    raise
            # It died while idle, before it began with this request, which is therefore not to blame.
            return self._exchange(message)

    def close(self) -> None:
        """End the worker, if one runs; a later request starts another."""
        if self._owner == os.getpid():
            with self._mutex:
                self._drop(grace_s=2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _make_client, (self.timeout_s, self.memory_limit_mb)

    def _exchange(self, message: Message) -> Message:
        while True:
            if self._process is None or self._process.popen.poll() is not None:
                self._process = self._start()
            end, left = current_end(), seconds_left()
            write_message(self._process.stdin, message if math.isinf(left) else {**message, "within_s": left})
            try:
                return self._reply(self._process, self.timeout_s, end)
            except _Shortened:
                check_time()

    def _start(self) -> _Process:
        self._drop(grace_s=0.0)
        process: _Process | None = None
        try:
            process = _Process(self.memory_limit_mb)
            self._finalizer = weakref.finalize(self, _stop_if_ours, process, os.getpid())
            self.starts += 1
            write_message(process.stdin, {"kind": "hello"})
            self._reply(process, _START_TIMEOUT_S)
        except (OSError, WorkerFailure) as error:
            words = str(error)
            if process is not None:
                process.stop(grace_s=0.0)
                words = process.last_words() or words
            raise WorkerStartError(
                f"the measurement worker does not start with {sys.executable}: {words}."
                " Check that `python -c 'import onnxruntime'` works there"
                + (" and that memory_limit_mb leaves room for it" if self.memory_limit_mb else "")
            ) from error
        return process

    def _drop(self, grace_s: float) -> None:
        if self._finalizer is not None:
            self._finalizer.detach()
            self._finalizer = None
        if self._process is not None:
            self._process.stop(grace_s)
            self._process = None

    def _reply(self, process: _Process, timeout_s: float, told_end: float = -math.inf) -> Message:
        """Return the reply to a request that was told of a time limit at `told_end`.

        Raises:
            _Shortened: the limit was brought forward since.
        """
        phase, deadline = "", time.monotonic() + timeout_s
        try:
            while True:
                try:
                    patience = min(deadline - time.monotonic(), seconds_left())
                    message = process.messages.get(timeout=max(0.0, min(patience, POLL_S)))
                except queue.Empty:
                    check_time()
                    if is_shortened(told_end):
                        raise _Shortened from None
                    if patience > POLL_S:
                        continue
                    reason = f"no progress for {timeout_s:g} s ({phase or 'before the model was opened'})"
                    raise WorkerFailure("hang", phase, f"the worker hung and was killed: {reason}") from None
                if message is None:
                    raise self._crash(process, phase)
                if "reply" in message:
                    reply: Message = message["reply"]
                    return reply
                phase = message["phase"]
                deadline = time.monotonic() + timeout_s + message["expect_s"]
        except BaseException:
            # Also on Ctrl-C: a late reply would be taken for the next request's.
            process.popen.kill()
            process.popen.wait()
            raise

    def _crash(self, process: _Process, phase: str) -> WorkerFailure:
        try:
            code = process.popen.wait(timeout=_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return WorkerFailure("crash", phase, f"the worker stopped answering and was killed ({phase})")
        words = process.last_words()
        told = (f" ({phase})" if phase else "") + (f": {words}" if words else "")
        if code == -signal.SIGKILL:
            return WorkerFailure("oom", phase, f"the worker was killed, most likely for want of memory{told}")
        if "bad_alloc" in words:
            return WorkerFailure("oom", phase, f"the worker ran out of memory{told}")
        return WorkerFailure("crash", phase, f"the worker crashed with {describe_exit(code)}{told}")


def _make_client(timeout_s: float, memory_limit_mb: int | None) -> WorkerClient:
    return WorkerClient(timeout_s=timeout_s, memory_limit_mb=memory_limit_mb)


def _stop_if_ours(process: _Process, owner: int) -> None:
    if os.getpid() == owner:  # a forked copy of the client must not end its parent's worker
        process.stop(grace_s=0.5)


def _read_all(stream: IO[bytes], messages: queue.SimpleQueue[Message | None]) -> None:
    try:
        with stream:
            while (message := read_message(stream)) is not None:
                messages.put(message)
    finally:
        messages.put(None)


def _read_lines(stream: IO[bytes], lines: deque[str]) -> None:
    with stream:
        for line in stream:
            lines.append(line.decode(errors="replace").strip())
