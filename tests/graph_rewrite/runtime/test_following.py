"""Processes that belong to another end with it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from graph_rewrite.runtime.leaf_process import run_leaf, start_leaf
from graph_rewrite.system.deadline import OutOfTime, ending_at

ROOT = Path(__file__).resolve().parents[3]
LEAF = """
import os, time
from ort_worker.following import follow
follow()
print(os.getpid(), flush=True)
time.sleep(99)
"""
PARENT = f"""
import sys
from graph_rewrite.runtime.leaf_process import start_leaf
start_leaf([sys.executable, "-P", "-c", {LEAF!r}]).wait()
"""


def is_alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(sys.platform != "linux", reason="processes are looked for in /proc")
def test_a_leaf_process_ends_when_its_parent_is_killed() -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert parent.stdout is not None
    leaf = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    ends = time.monotonic() + 60.0  # it looks once a second
    while is_alive(leaf) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not is_alive(leaf)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_to_the_group_never_reach_a_process_that_is_just_started(number: signal.Signals) -> None:
    script = "import sys, time; sys.stdout.write('up'); sys.stdout.flush(); time.sleep(0.3); print(' and well')"
    process = start_leaf([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    os.kill(process.pid, number)  # at its first moment, and once it runs
    assert process.stdout is not None
    assert process.stdout.read(2) == "up"
    os.kill(process.pid, number)
    assert process.communicate(timeout=60)[0] == " and well\n"
    assert not signal.pthread_sigmask(signal.SIG_BLOCK, [])


class TestRunning:
    def test_output_and_status(self) -> None:
        script = "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"
        done = run_leaf([sys.executable, "-c", script], 60.0)
        assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)

    def test_more_output_than_a_pipe_holds_while_it_waits(self) -> None:
        script = "import sys, time; sys.stdout.write('x' * 10**6); sys.stdout.flush(); time.sleep(0.5); print('end')"
        assert run_leaf([sys.executable, "-c", script], 60.0).stdout == "x" * 10**6 + "end\n"

    def test_it_is_killed_at_the_end_of_its_time_and_of_the_run(self) -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(99)"]
        with pytest.raises(subprocess.TimeoutExpired):
            run_leaf(sleep, 0.3)
        with ending_at(time.monotonic() + 0.3), pytest.raises(OutOfTime):
            run_leaf(sleep, 60.0)
