"""One measurement at a time on the whole machine."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from graph_rewrite.latency import LockTimeout, MachineLock, unblocked_time

HOLDER = """
import sys
from graph_rewrite.latency import MachineLock
with MachineLock(sys.argv[1], timeout_s=5):
    print("held", flush=True)
    sys.stdin.readline()
"""
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def holder(lock_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the lock until its stdin gets a line."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", HOLDER, str(lock_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_excludes_another_process_and_names_it(lock_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(LockTimeout, match=rf"process {holder.pid} has held .*measure\.lock"):
        MachineLock(lock_path, timeout_s=0.2).__enter__()
    holder.communicate("\n")
    with MachineLock(lock_path, timeout_s=5):
        pass


def test_waits_for_another_process(lock_path: Path, holder: subprocess.Popen[str]) -> None:
    threading.Timer(0.2, holder.communicate, ["\n"]).start()
    with MachineLock(lock_path, timeout_s=10):
        assert holder.wait(timeout=10) == 0


def test_the_clock_stands_still_while_another_process_measures(lock_path: Path, holder: subprocess.Popen[str]) -> None:
    before, real = unblocked_time(), time.monotonic()
    with pytest.raises(LockTimeout):
        MachineLock(lock_path, timeout_s=0.5).__enter__()
    real = time.monotonic() - real
    assert real >= 0.5
    assert unblocked_time() - before < real - 0.4
    before = unblocked_time()
    time.sleep(0.05)
    assert unblocked_time() - before >= 0.04


def test_a_killed_holder_frees_it(lock_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with MachineLock(lock_path, timeout_s=5):
        pass


def test_the_holding_thread_may_take_it_again(lock_path: Path) -> None:
    with MachineLock(lock_path, timeout_s=1), MachineLock(lock_path, timeout_s=1) as again, again:
        assert lock_path.read_text() == str(os.getpid())
    with MachineLock(lock_path, timeout_s=1):
        pass


def test_excludes_another_thread(lock_path: Path) -> None:
    failures: list[BaseException] = []

    def take() -> None:
        try:
            MachineLock(lock_path, timeout_s=0.1).__enter__()
        except LockTimeout as error:
            failures.append(error)

    with MachineLock(lock_path):
        thread = threading.Thread(target=take)
        thread.start()
        thread.join()
    assert len(failures) == 1
    assert f"process {os.getpid()}" in str(failures[0])


def test_released_after_an_error(lock_path: Path) -> None:
    with pytest.raises(KeyError), MachineLock(lock_path):
        raise KeyError
    with MachineLock(lock_path, timeout_s=1):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_forked_child_does_not_hold_its_parents_lock(lock_path: Path) -> None:
    ready, done = os.pipe(), os.pipe()
    with MachineLock(lock_path, timeout_s=1):
        child = os.fork()
        if child == 0:
            os.write(ready[1], b"x")
            os.read(done[0], 1)
            os._exit(0)
        os.read(ready[0], 1)
    try:
        # The child lives on and has inherited what was open.
        with MachineLock(lock_path, timeout_s=1):
            pass
    finally:
        os.write(done[1], b"x")
        os.waitpid(child, 0)
        for descriptor in (*ready, *done):
            os.close(descriptor)
