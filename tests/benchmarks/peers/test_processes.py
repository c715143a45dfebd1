"""A peer that crashes, hangs or fails as it prepares a model is reported, and leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from benchmarks.peers import FailedPeer, MissingPeer
from benchmarks.peers.processes import prepare_apart
from tests.benchmarks.peers.planted import TASKS

LIMIT_S = 500.0


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working folder; processes find the module `planted_tasks`."""
    modules = tmp_path / "modules"
    modules.mkdir()
    (modules / "planted_tasks.py").write_text(TASKS, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(modules))
    return tmp_path / "work"


def test_success_returns_what_the_task_made(folder: Path) -> None:
    made = prepare_apart("planted", "planted_tasks:succeed", Path("model.onnx"), folder, 2)
    assert made == {"model": str(Path("model.onnx").resolve()), "cwd": str(folder), "threads": 2, "omp": "2"}
    assert (folder / "prepare.log").read_text() == "noise\n"


@pytest.mark.parametrize(
    ("task", "message"),
    [
        ("crash", "planted failed with SIGABRT"),
        ("fail", "planted failed with exit status 1: ValueError: no such thing"),
    ],
)
def test_failure_names_the_reason(task: str, message: str, folder: Path) -> None:
    with pytest.raises(FailedPeer) as caught:
        prepare_apart("planted", f"planted_tasks:{task}", Path("model.onnx"), folder, 1)
    assert str(caught.value).startswith(message)


def test_an_answer_of_an_earlier_run_does_not_count(folder: Path) -> None:
    folder.mkdir()
    (folder / "answer.json").write_text('{"made": {}}', encoding="utf-8")
    with pytest.raises(FailedPeer):
        prepare_apart("planted", "planted_tasks:crash", Path("model.onnx"), folder, 1)


class Impatient(subprocess.Popen[bytes]):
    """A process for which the limit of `prepare_apart` is over as soon as it has written `child` into its folder."""

    def wait(self, timeout: float | None = None) -> int:
        if timeout != LIMIT_S:
            return super().wait(timeout)
        while not (Path(os.readlink(f"/proc/{self.pid}/cwd")) / "child").exists():
            assert self.poll() is None
            time.sleep(0.05)
        raise subprocess.TimeoutExpired(self.args, timeout)


@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="the system does not tell about processes in /proc")
def test_hanging_ends_at_the_limit_with_its_children(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", Impatient)
    with pytest.raises(FailedPeer, match=r"^planted was not ready after 500 s$"):
        prepare_apart("planted", "planted_tasks:hang", Path("model.onnx"), folder, 1, LIMIT_S)
    child = int((folder / "child").read_text())
    for _ in range(100):  # until whoever adopted it has taken note of its end
        if not _runs(child):
            return
        time.sleep(0.05)
    pytest.fail("a child of the process that was killed runs on")


def test_missing_is_no_failure(folder: Path) -> None:
    with pytest.raises(MissingPeer, match=r"^planted: no device$") as caught:
        prepare_apart("planted", "planted_tasks:be_missing", Path("model.onnx"), folder, 1)
    assert not isinstance(caught.value, FailedPeer)


def _runs(pid: int) -> bool:
    """Tell whether a process runs: it exists and is no zombie."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"
