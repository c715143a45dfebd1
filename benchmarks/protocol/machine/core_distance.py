"""The distance of two cores: how long one takes to see what the other has written.

Cores that share a cache hand a number over in some tens of nanoseconds, others take 100 to 200 more. A hypervisor moves
virtual cores about, so that on a virtual machine the distance may change from one second to the next, and with it what
several threads gain.
"""

from __future__ import annotations

import mmap
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.protocol.machine.processes import child_environment, ending_with_us, pinned
from graph_rewrite.errors import MachineError

ROUND_TRIPS, BATCHES = 500, 7
"""Hand-overs there and back of a batch, and batches of a look, of which the middle one counts."""
_PATIENCE = 10_000_000
"""Looks at the number before the other process is given up: some tenths of a second."""
_MODULE = __name__


class CoreProbe:
    """Looks at the distance of two cores.

    Args:
        cores: the two.
        number: a byte that this process shares with the one on the second core.
        other: that process; it answers as many hand-overs as a line of its input says.
    """

    def __init__(self, cores: Sequence[int], number: mmap.mmap, other: subprocess.Popen[str]) -> None:
        self._here, self._number, self._other = cores[:1], number, other

    def look(self) -> float:
        """Return the seconds of a hand-over, the interpreter's own included: the same on both sides, some 0.1 us.

        Raises:
            MachineError: the other process does not answer.
        """
        assert self._other.stdin is not None
        self._other.stdin.write(f"{BATCHES * ROUND_TRIPS}\n")
        self._other.stdin.flush()
        with pinned(self._here):
            return median(self._batch() for _ in range(BATCHES)) / (2 * ROUND_TRIPS)

    def _batch(self) -> float:
        began = time.perf_counter()
        for _ in range(ROUND_TRIPS):
            self._number[0] = 1
            _wait_for(self._number, 0)
        return time.perf_counter() - began


@contextmanager
def probe_between(cores: Sequence[int]) -> Iterator[CoreProbe]:
    """Make a probe between two cores, with a process on the second that ends with the block.

    Raises:
        MachineError: the process does not start.
    """
    with tempfile.NamedTemporaryFile() as shared:
        shared.write(bytes(mmap.PAGESIZE))
        shared.flush()
        with pinned(cores[1:2]):
            other = subprocess.Popen(
                [sys.executable, "-m", _MODULE, shared.name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                env=child_environment(1), start_new_session=True,
            )  # fmt: skip
        with ending_with_us(other):
            assert other.stdout is not None
            if other.stdout.readline() != "ready\n":
                raise MachineError("the process that looks at the distance of two cores does not start")
            with mmap.mmap(shared.fileno(), mmap.PAGESIZE) as number:
                yield CoreProbe(cores, number, other)


def _wait_for(number: mmap.mmap, value: int) -> None:
    for _ in range(_PATIENCE):
        if number[0] == value:
            return
    raise MachineError("the other of two cores does not answer")


def main() -> None:
    """Answer hand-overs in the file of the command line, as many as each line of standard input says."""
    with Path(sys.argv[1]).open("r+b") as shared, mmap.mmap(shared.fileno(), mmap.PAGESIZE) as number:
        print("ready", flush=True)
        for line in sys.stdin:
            for _ in range(int(line)):
                _wait_for(number, 1)
                number[0] = 0


if __name__ == "__main__":
    main()
