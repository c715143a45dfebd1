"""The process of a contestant: requests and answers, planted clocks, and processes that end or print."""

import io
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Timer
from typing import Any

import numpy as np
import pytest

from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.judging.contestant_process import (
    ContestantServer,
    read_feeds,
    read_outputs,
    serve,
    write_feeds,
)
from benchmarks.protocol.judging.seats import JudgeStopped, ProcessSeat, SeatError

FEEDS = [{"x": np.full(3, place, np.float32)} for place in range(4)]


@dataclass
class Clock:
    """A clock that only runs set forward."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class PlantedRunner:
    """Takes as many seconds as its input says; its outputs share memory from run to run."""

    clock: Clock
    seen: list[float] = field(default_factory=list)
    buffer: np.ndarray = field(default_factory=lambda: np.zeros(1, np.float32))

    def run(self, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        value = float(feeds["x"][0])
        self.seen.append(value)
        self.clock.now += value
        self.buffer[0] = value
        return [self.buffer]


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> PlantedRunner:
    made = PlantedRunner(Clock())
    monkeypatch.setattr(Contestant, "open", lambda self, threads: made)
    return made


def server(runner: PlantedRunner) -> ContestantServer:
    return ContestantServer(Contestant("a", "m"), FEEDS, 1, runner.clock, lambda: runner.clock.now / 2)


def test_a_turn_has_one_untimed_run_and_times_the_others(runner: PlantedRunner) -> None:
    served = server(runner)
    assert served.answer({"do": "open"})["run_s"] == 0.0
    runner.seen.clear()
    assert served.answer({"do": "turn", "inputs": [1, 3]}) == {"wall": 2.0, "cpu": 1.0}
    assert runner.seen == [3.0, 1.0, 3.0]


def test_outputs_on_every_input_are_written(runner: PlantedRunner, tmp_path: Path) -> None:
    server(runner).answer({"do": "open", "outputs": str(tmp_path / "a.npz")})
    assert [[float(value[0]) for value in values] for values in read_outputs(tmp_path / "a.npz")] == [
        [0.0], [1.0], [2.0], [3.0],
    ]  # fmt: skip


def test_what_goes_wrong_is_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ContestantServer(Contestant("a", "benchmarks.no_such_module"), FEEDS, 1)
    assert "ModuleNotFoundError" in served.answer({"do": "open"})["error"]
    answers = io.StringIO()
    serve(served, io.StringIO('{"do": "turn", "inputs": [0]}\n'), answers)
    assert "not open" in json.loads(answers.getvalue())["error"]


def test_inputs_survive_the_way_to_another_process(tmp_path: Path) -> None:
    write_feeds(tmp_path, FEEDS)
    assert [float(feed["x"][0]) for feed in read_feeds(tmp_path)] == [0.0, 1.0, 2.0, 3.0]


def planted_module(folder: Path, body: str) -> Contestant:
    """A contestant whose module has this body in `run`."""
    lines = "\n".join(f"        {line}" for line in body.splitlines())
    (folder / "planted_peer.py").write_text(
        "import os, sys, time\nimport numpy as np\nclass Runner:\n    def run(self, feeds):\n"
        f"{lines}\n        return [feeds['x'] * 2]\ndef open_runner(contestant, threads): return Runner()\n"
    )
    return Contestant("peer", "planted_peer")


@pytest.fixture
def feeds(tmp_path: Path) -> Path:
    write_feeds(tmp_path / "feeds", FEEDS)
    return tmp_path / "feeds"


def test_a_process_runs_its_contestant_and_may_print(
    tmp_path: Path, feeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    contestant = planted_module(tmp_path, "print('chatter', flush=True)\nos.write(1, b'more')")
    with ProcessSeat(contestant, feeds, 1, (), tmp_path / "log") as seat:
        opened = seat.open(tmp_path / "out.npz")
        assert opened["bytes"] >= opened["huge_bytes"] >= 0
        assert opened["bytes"] > 0
        found: dict[str, Any] = seat.turn([0, 1])
        assert found["wall"] >= found["cpu"] * 0.0
        assert set(found) == {"wall", "cpu"}
    assert float(read_outputs(tmp_path / "out.npz")[3][0][0]) == 6.0
    assert "chatter" in (tmp_path / "log").read_text()


def test_a_process_that_crashes_or_hangs_is_told_of(
    tmp_path: Path, feeds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with ProcessSeat(planted_module(tmp_path, "os.abort()"), feeds, 1, ()) as seat:
        with pytest.raises(SeatError, match="SIGABRT"):
            seat.open(None)
        with pytest.raises(SeatError, match="SIGABRT"):
            seat.turn([0])
    monkeypatch.setattr("benchmarks.protocol.judging.seats.OPEN_S", 1.0)
    slow = planted_module(tmp_path, "time.sleep(60)")
    with ProcessSeat(slow, feeds, 1, ()) as seat, pytest.raises(SeatError, match="does not answer in time"):
        seat.open(None)


def test_a_seat_that_waits_ends_with_its_judge(tmp_path: Path, feeds: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    stopped = Event()
    with ProcessSeat(planted_module(tmp_path, "time.sleep(60)"), feeds, 1, (), stopped=stopped) as seat:
        Timer(0.1, stopped.set).start()
        began = time.monotonic()
        with pytest.raises(JudgeStopped):
            seat.open(None)
    assert time.monotonic() - began < 30.0
