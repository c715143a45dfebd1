"""The distance of two cores: looks at the two at hand, and a process that does not answer."""

import mmap
import os
import signal
import subprocess
import sys

import pytest

from benchmarks.protocol.machine import core_distance
from benchmarks.protocol.machine.core_distance import CoreProbe, probe_between
from benchmarks.protocol.machine.processes import cores_for
from graph_rewrite.errors import MachineError

CORES = cores_for(2)


@pytest.mark.skipif(len(CORES) < 2, reason="there is one core")
def test_a_look_takes_about_what_a_number_takes_from_core_to_core() -> None:
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    with probe_between(CORES) as probe:
        looks = [probe.look() for _ in range(3)]
        other = probe._other
    assert other.poll() is not None
    assert all(1e-9 < one < 1e-3 for one in looks)
    if before is not None:
        assert os.sched_getaffinity(0) == before


def test_a_process_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(core_distance, "_PATIENCE", 1000)
    silent = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, text=True)
    try:
        with mmap.mmap(-1, mmap.PAGESIZE) as number, pytest.raises(MachineError, match="does not answer"):
            CoreProbe(CORES, number, silent).look()
    finally:
        silent.send_signal(signal.SIGKILL)
        silent.wait()
