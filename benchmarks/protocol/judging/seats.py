"""Seats of a judgement: contestants in processes of their own, as the judge sees them."""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from threading import Event
from types import TracebackType
from typing import Any, Protocol, Self

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.machine.processes import child_environment, ending_with_us, pinned
from graph_rewrite.runtime.leaf_process import describe_exit

OPEN_S = 1200.0
"""Seconds for opening a contestant and running it on all inputs: compilers take minutes."""
TURN_S = 300.0
"""Seconds for one turn."""
POLL_S = 0.5
"""Seconds after which a seat that waits looks whether the judge was stopped."""


class SeatError(Exception):
    """A contestant that cannot be opened or run, ended its process, or hangs."""


class JudgeStopped(Exception):
    """The judge was stopped while a session was under way."""


class Seat(Protocol):
    """A contestant that is open, or to be opened."""

    def open(self, outputs: Path | None) -> dict[str, Any]:
        """Open it, run it on every input, and write the outputs. Return `run_s` (seconds of a run) and `bytes`.

        Raises:
            SeatError: it cannot be opened or run.
        """
        ...

    def turn(self, inputs: Sequence[int]) -> dict[str, Any]:
        """Run it on some inputs. Return seconds per run by the clocks `wall` and `cpu`.

        Raises:
            SeatError: it fails.
        """
        ...


Seating = Callable[[Contestant, int], AbstractContextManager[Seat]]
"""Gives a contestant its seat in a lane, which is left with the context."""


class ProcessSeat:
    """A contestant in a fresh process, pinned to `cores`.

    Args:
        feeds: folder of the inputs, as `contestant_process.write_feeds` writes it.
        log: file for what the process prints.
        stopped: ends the waiting for an answer with JudgeStopped.
    """

    def __init__(
        self,
        contestant: Contestant,
        feeds: Path,
        threads: int,
        cores: Sequence[int],
        log: Path | None = None,
        stopped: Event | None = None,
    ) -> None:
        self._command = [
            sys.executable, "-m", "benchmarks.protocol.judging.contestant_process", json.dumps(contestant.to_json()),
            str(feeds), str(threads),
        ]  # fmt: skip
        self._environment = {**child_environment(threads), **contestant.environment}
        self._cores, self._log, self._stopped = cores, log, stopped or Event()
        self._stack = ExitStack()
        self._process: subprocess.Popen[bytes] | None = None
        self._buffer = b""

    def __enter__(self) -> Self:
        errors: Any = subprocess.DEVNULL if self._log is None else self._stack.enter_context(self._log.open("ab"))
        pipe = subprocess.PIPE
        with pinned(self._cores):
            self._process = subprocess.Popen(
                self._command, stdin=pipe, stdout=pipe, stderr=errors, env=self._environment,
                start_new_session=True, bufsize=0,  # nothing is left to be written to a process that has ended
            )  # fmt: skip
        self._stack.enter_context(ending_with_us(self._process))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._stack.close()

    def open(self, outputs: Path | None) -> dict[str, Any]:
        """As `Seat.open`."""
        return self._ask({"do": "open", "outputs": None if outputs is None else str(outputs)}, OPEN_S)

    def turn(self, inputs: Sequence[int]) -> dict[str, Any]:
        """As `Seat.turn`."""
        return self._ask({"do": "turn", "inputs": list(inputs)}, TURN_S)

    def _ask(self, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise SeatError("its process is not running")
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            raise SeatError(self._end()) from None
        answer: dict[str, Any] = json.loads(self._line(process.stdout.fileno(), time.monotonic() + seconds))
        if "error" in answer:
            raise SeatError(answer["error"])
        return answer

    def _line(self, stream: int, until: float) -> bytes:
        """Read a line of the answers."""
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while b"\n" not in self._buffer:
                if self._stopped.is_set():
                    raise JudgeStopped
                left = max(0.0, until - time.monotonic())
                if not selector.select(min(left, POLL_S)):
                    if left <= POLL_S:
                        raise SeatError("it does not answer in time")
                    continue
                chunk = os.read(stream, 1 << 16)
                if not chunk:
                    raise SeatError(self._end())
                self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _end(self) -> str:
        assert self._process is not None
        try:
            return f"its process ended with {describe_exit(self._process.wait(5.0))}"
        except subprocess.TimeoutExpired:
            return "its process does not answer"
