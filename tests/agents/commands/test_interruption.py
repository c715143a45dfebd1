"""Ctrl-C and SIGTERM: searches end and their best results are written, training saves its checkpoint."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

import pytest
from rich.console import Console

from agents.commands import signals
from agents.commands.signals import SearchWatch, ending_search, interrupting_on_term
from agents.core.base import Budget, Search
from agents.ppo.checkpoint import load_checkpoint
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

    def test_a_second_signal_stops_the_program_and_one_at_once_does_not(self, monkeypatch: pytest.MonkeyPatch) -> None:
        now = [10.0]
        monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
        with ending_search(Console(quiet=True)):
            os.kill(os.getpid(), signal.SIGINT)
            now[0] += 0.5
            os.kill(os.getpid(), signal.SIGINT)
            now[0] += 1.0
            with pytest.raises(KeyboardInterrupt):
                os.kill(os.getpid(), signal.SIGTERM)

    def test_handlers_are_put_back(self) -> None:
        before = [signal.getsignal(number) for number in SIGNALS]
        with ending_search(Console(quiet=True)), interrupting_on_term(), pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
        assert [signal.getsignal(number) for number in SIGNALS] == before

    def test_in_another_thread_nothing_is_handled(self) -> None:
        found: list[Any] = []

        def run() -> None:
            with ending_search(Console(quiet=True)) as watch, interrupting_on_term():
                found.append(watch)

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        assert isinstance(found[0], SearchWatch)
