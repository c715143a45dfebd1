"""Ctrl-C and SIGTERM: searches end and their best results are written, training saves its checkpoint."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import pytest
from rich.console import Console

from agents.commands import optimize, signals
from agents.commands.signals import (
    HURRY_S,
    SearchWatch,
    ending_search,
    interrupting_between_steps,
)
from agents.core.base import Budget, Search
from agents.core.registry import make_agent
from agents.optimization.options import OptimizeOptions
from agents.optimization.run import optimize_model
from agents.ppo.checkpoint import load_checkpoint
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency
from graph_rewrite.system.deadline import OutOfTime, check_time, ending_at, seconds_left
from graph_rewrite.system.signals import interrupting_on_term
from tests.agents.toys import chain_problem
from tests.envs.fakes import write_tower

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("ppo.n_steps=16", "training.checkpoint_freq=16", "encoder.hidden=16", "encoder.layers=1", "env.horizon=4")
SIGNALS = [signal.SIGINT, signal.SIGTERM]


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", 2, 16)


def start(folder: Path, script: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / script), *arguments], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip


def read_until(stream: IO[str] | None, text: str) -> str:
    """Read lines up to one with `text`; fails at the end of the stream."""
    assert stream is not None
    seen = ""
    for line in stream:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"no line with {text!r} in: {seen}")


def only_run(folder: Path) -> Path:
    (run,) = (folder / "runs").iterdir()
    return run


@pytest.mark.parametrize("number", SIGNALS)
def test_an_interrupted_comparison_keeps_and_prints_what_it_has(
    tower: Path, tmp_path: Path, number: signal.Signals
) -> None:
    process = start(
        tmp_path, "evaluate.py", "--model", str(tower), "--agents", "greedy", "random", "taso", "--measurements",
        "1000000", "--seconds", "600", "--set", "search.measurements=3", "--no-plots", "--json",
    )  # fmt: skip
    read_until(process.stderr, "model ")
    os.kill(process.pid, number)
    output, errors = process.communicate(timeout=200)
    assert process.returncode == 0, errors
    assert "ending the search" in errors
    summary = json.loads(output)
    assert summary["interrupted"]
    (entry,) = summary["results"]
    assert entry["agent"] == "greedy"
    assert entry["verified"]
    assert Path(tmp_path, entry["onnx_path"]).is_file()
    assert json.loads((only_run(tmp_path) / "result.json").read_text()) == summary


def test_sigterm_in_training_saves_the_checkpoint(tower: Path, tmp_path: Path) -> None:
    settings = [part for setting in SMALL for part in ("--set", setting)]
    process = start(tmp_path, "train.py", "--model", str(tower), "--total-timesteps", "1000000", *settings)
    read_until(process.stderr, "training on")
    while not list((tmp_path / "runs").glob("*/checkpoint/policy.json")):
        assert process.poll() is None, process.communicate()[1]
    before = load_checkpoint(only_run(tmp_path)).description.timesteps
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=100)
    assert process.returncode == 130, errors
    assert "the checkpoint is saved. Go on with:" in errors
    assert load_checkpoint(only_run(tmp_path)).description.timesteps >= before >= 16


class BusyConsole(Console):
    """A console that is just printing something when it is asked first."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.refused, self.said = 0, list[str]()

    def print(self, *objects: Any, **options: Any) -> None:
        if not self.refused:
            self.refused += 1
            raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")
        self.said += map(str, objects)


class TestWatch:
    @pytest.fixture
    def search(self, tmp_path: Path) -> Search:
        return Search(chain_problem(tmp_path), Budget())

    def test_the_search_under_way_ends_and_so_does_a_later_one(self, search: Search, tmp_path: Path) -> None:
        later = Search(search.problem, Budget())
        with ending_search(Console(quiet=True)) as watch:
            watch(later)
            watch(search)
            assert not watch.interrupted
            os.kill(os.getpid(), signal.SIGTERM)
            assert watch.interrupted
            assert search.ended
            assert not later.ended
            watch(later)
            assert later.ended

    @pytest.mark.parametrize("goes_on", [True, False])
    def test_what_a_signal_in_the_middle_of_printing_could_not_say_is_said_later(
        self, search: Search, goes_on: bool
    ) -> None:
        console = BusyConsole()
        with ending_search(console) as watch:
            os.kill(os.getpid(), signal.SIGINT)
            assert (console.refused, console.said) == (1, [])
            if goes_on:
                watch(search)
                assert search.ended
                assert len(console.said) == 1
        (text,) = console.said
        assert text.startswith("ending the search")

    def test_a_second_signal_hurries_a_third_stops_and_one_at_once_does_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [10.0]
        monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
        with ending_search(Console(quiet=True)) as watch:
            os.kill(os.getpid(), signal.SIGINT)
            now[0] += 0.5
            os.kill(os.getpid(), signal.SIGINT)
            assert watch.interrupted
            assert not watch.hurried
            assert seconds_left() == math.inf
            now[0] += 1.0
            os.kill(os.getpid(), signal.SIGINT)
            assert watch.hurried
            assert seconds_left() == HURRY_S
            now[0] += 0.5
            os.kill(os.getpid(), signal.SIGTERM)
            now[0] += 1.0
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGINT)

    def test_sigterm_breaks_the_search_off_and_leaves_the_conclusion_some_seconds(
        self, search: Search, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
        search.budget = Budget(10**9, 70.0, conclusion_s=30.0, deadline=200.0)
        with ending_search(Console(quiet=True), planned=220.0) as watch:
            with search.running():
                watch(search)
                assert seconds_left() == 200.0 - 0.8 * 30.0 - 100.0
                os.kill(os.getpid(), signal.SIGTERM)
                check_time()  # breaks off
                raise AssertionError("the search goes on")
            assert search.cut_off
            assert seconds_left() == HURRY_S
            with ending_at(search.budget.deadline):
                assert seconds_left() == pytest.approx(HURRY_S * 100 / 120)  # its part of what was planned

    def test_handlers_are_put_back(self) -> None:
        before = [signal.getsignal(number) for number in SIGNALS]
        with ending_search(Console(quiet=True)), interrupting_on_term(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert [signal.getsignal(number) for number in SIGNALS] == before

    @pytest.mark.parametrize("number", SIGNALS)
    def test_training_ends_at_the_end_of_a_step_and_at_once_when_asked_again(
        self, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        now = [100.0]
        monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
        with interrupting_between_steps() as end_here:
            end_here()
            os.kill(os.getpid(), number)  # raises nothing in the middle of a step
            with pytest.raises(KeyboardInterrupt):
                end_here()
            os.kill(os.getpid(), number)  # the same wish: shells signal a process and its group
            now[0] += 2.0
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), number)

    def test_in_another_thread_nothing_is_handled(self) -> None:
        found: list[Any] = []

        def run() -> None:
            with ending_search(Console(quiet=True)) as watch, interrupting_on_term():
                found.append(watch)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert isinstance(found[0], SearchWatch)


class TestOvertime:
    """The hard limit of searches that have no deadline, as in `evaluate`."""

    def test_a_search_is_broken_off_when_it_overruns_and_what_is_not_charged_puts_that_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = Search(chain_problem(tmp_path), Budget(seconds=70.0, overtime_s=100.0))
        now = [500.0]
        monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
        with search.running():
            assert seconds_left() == pytest.approx(70.0 + 20.0)
            search.exclude(5.0)
            assert seconds_left() == pytest.approx(70.0 + 25.0)
            now[0] += 95.0
            check_time()
            raise AssertionError("the search goes on")
        assert search.cut_off
        assert seconds_left() == math.inf

    def test_a_conclusion_that_takes_longer_keeps_the_original(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It has its overtime, and what the search left of its own seconds."""
        problem = chain_problem(tmp_path)
        left: list[float] = []
        measure = problem.meter.measure

        def doubtful(graph: Graph, effort: Effort = "screen") -> Latency:
            return replace(measure(graph, effort), ci95=(0.9, 9.0))

        def confirm(*_: object, **__: object) -> None:
            left.append(seconds_left())
            raise OutOfTime("the time limit is reached")

        monkeypatch.setattr(problem.meter, "measure", doubtful)
        monkeypatch.setattr(problem, "confirm", confirm)
        result = make_agent("greedy:beam=2,lookahead=2").optimize(problem, Budget(seconds=60.0, overtime_s=100.0))
        assert 100.0 < max(left) <= 160.0
        assert result.is_original
        assert "no time was left to confirm" in result.message


class TestOpening:
    def test_a_limit_that_is_over_before_the_model_is_open_is_said_and_nothing_is_written(
        self, tower: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert (
            optimize.main([str(tower), str(tmp_path / "out.onnx"), "--time-limit", "0.000001", "--threads", "1"]) == 2
        )
        assert "is over before the model is open, and nothing is written" in capsys.readouterr().err
        assert not (tmp_path / "out.onnx").exists()

    def test_a_signal_that_leaves_no_time_for_opening_interrupts(self, tower: Path) -> None:
        with ending_at(None) as limit:
            limit.bring_forward(0.0)
            with pytest.raises(KeyboardInterrupt, match="not open yet, and nothing is written"):
                optimize_model(tower, OptimizeOptions(threads="1"))
