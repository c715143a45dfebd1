"""The time limit of a run: who waits or loops ends with it."""

import math
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from graph_rewrite import Rewriter, load
from graph_rewrite.delivery.equivalence import equivalent
from graph_rewrite.latency import Deployment, MachineLock
from graph_rewrite.runtime import FeedSpec, WorkerClient, recipes_to_json
from graph_rewrite.runtime.leaf_process import run_leaf
from graph_rewrite.system import deadline
from graph_rewrite.system.deadline import OutOfTime, check_time, ending_at, seconds_left
from tests.envs.fakes import write_tower


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(deadline.time, "monotonic", lambda: now[0])
    return now


def test_without_a_limit_nothing_ends() -> None:
    check_time()
    assert seconds_left() == math.inf
    with ending_at(None):
        assert seconds_left() == math.inf


def test_the_nearest_limit_holds_and_ends_with_its_block(clock: list[float]) -> None:
    with ending_at(110.0):
        with ending_at(130.0):
            assert seconds_left() == 10.0
        with ending_at(104.0):
            clock[0] = 104.0
            with pytest.raises(OutOfTime):
                check_time()
        check_time()
        assert seconds_left() == 6.0
    clock[0] = 1000.0
    check_time()


class TestBringingForward:
    def test_what_runs_inside_ends_earlier_each_part_in_proportion(self, clock: list[float]) -> None:
        with ending_at(None) as whole, ending_at(200.0), ending_at(150.0):
            whole.bring_forward(10.0)
            assert seconds_left() == 5.0
            clock[0] = 105.0
            with pytest.raises(OutOfTime):
                check_time()

    def test_what_was_planned_before_is_squeezed_later_too(self, clock: list[float]) -> None:
        with ending_at(None) as whole:
            whole.bring_forward(10.0, planned=300.0)
            clock[0] = 102.0
            assert seconds_left() == 8.0
            with ending_at(200.0):
                assert seconds_left() == 3.0
            with ending_at(106.0):  # planned after the change
                assert seconds_left() == 4.0
            with ending_at(1000.0):
                assert seconds_left() == 8.0
        assert seconds_left() == math.inf

    def test_an_end_is_never_put_off(self, clock: list[float]) -> None:
        with ending_at(104.0) as whole, ending_at(103.0):
            whole.bring_forward(10.0)
            assert seconds_left() == 3.0

    def test_a_pause_puts_a_limit_off(self, clock: list[float]) -> None:
        paused = [7.0]
        with ending_at(110.0, lambda: paused[0]) as limit:
            assert seconds_left() == 10.0
            clock[0], paused[0] = 104.0, 11.0
            assert seconds_left() == 10.0
            limit.bring_forward(2.0)
            assert seconds_left() == 2.0

    def test_a_worker_under_way_is_asked_anew_with_the_time_left(self) -> None:
        with WorkerClient() as worker, ending_at(time.monotonic() + 1000.0) as limit:
            worker.request({"kind": "hello"})
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGSTOP)  # busy with what it was told, for as long as it was told
            threading.Timer(0.2, lambda: limit.bring_forward(60.0)).start()
            assert worker.request({"kind": "hello"})["status"] == "ok"
            assert worker.starts == 2

    def test_waiting_for_a_process_ends(self) -> None:
        with ending_at(time.monotonic() + 1000.0) as limit:
            threading.Timer(0.2, lambda: limit.bring_forward(0.0)).start()
            with pytest.raises(OutOfTime):
                run_leaf([sys.executable, "-c", "import time; time.sleep(60)"], 60.0)


def test_another_thread_has_no_limit_of_this_one(clock: list[float]) -> None:
    found: list[float] = []
    with ending_at(0.0):
        thread = threading.Thread(target=lambda: found.append(seconds_left()))
        thread.start()
        thread.join()
    assert found == [math.inf]


def chain(path: Path, length: int) -> Path:
    nodes = [helper.make_node("Add", [f"v{i}", "v0"], [f"v{i + 1}"], f"add{i}") for i in range(length)]
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (2, 3)) for name in ("v0", f"v{length}")]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), str(path))
    return path


def test_a_listing_is_broken_off_and_complete_the_next_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, rewriter = load(chain(tmp_path / "chain.onnx", 60)), Rewriter()
    asked = iter(range(1000))
    monkeypatch.setattr(deadline.time, "monotonic", lambda: float(next(asked)))
    with ending_at(20.0), pytest.raises(OutOfTime):
        rewriter.sites(graph)
    assert next(asked) < 40
    monkeypatch.undo()
    assert len(rewriter.sites(graph)) == len(Rewriter().sites(load(tmp_path / "chain.onnx")))


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Hold the lock in another process for as long as the block lasts."""
    holder = "import sys\nfrom graph_rewrite.latency import MachineLock\n"
    holder += "with MachineLock(sys.argv[1]):\n    print('held', flush=True)\n    sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield
        process.stdin.close()


def test_waiting_for_the_lock_of_another_process_ends(tmp_path: Path) -> None:
    with held(tmp_path / "lock"):
        with ending_at(time.monotonic() + 0.05), pytest.raises(OutOfTime), MachineLock(tmp_path / "lock"):
            pass
        with pytest.raises(TimeoutError), MachineLock(tmp_path / "lock", timeout_s=0.0):
            pass


def test_a_worker_that_would_take_longer_is_ended_and_the_next_request_gets_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tower(tmp_path / "hung.onnx", 1)
    request = {"kind": "time", "candidate": {"path": str(path), "deployment": Deployment().to_json()}}
    monkeypatch.setenv("REWRITEGYM_WORKER_FAULT", "hang:hung")
    with WorkerClient(timeout_s=600.0) as client:
        client.request({"kind": "hello"})
        with ending_at(time.monotonic() + 0.2), pytest.raises(OutOfTime):
            client.request({**request, "plan": {}, "feeds": recipes_to_json(FeedSpec())})
        with ending_at(time.monotonic() - 1.0), pytest.raises(OutOfTime):
            client.request({"kind": "hello"})
        assert client.request({"kind": "hello"})["status"] == "ok"
        assert client.starts == 2


def test_a_comparison_of_outputs_ends(tmp_path: Path) -> None:
    path = write_tower(tmp_path / "tower.onnx", 1)
    with ending_at(time.monotonic() + 0.01), pytest.raises(OutOfTime):
        equivalent(path, path, Deployment())
