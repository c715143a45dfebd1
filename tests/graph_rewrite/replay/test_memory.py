"""The memory of results: what is found again, and what broken files and killed processes do to it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from graph_rewrite.replay import Recording
from graph_rewrite.replay.memory import RememberedResult, ResultMemory
from graph_rewrite.replay.recording import RecordedStep

HERE = {"device": "this", "onnxruntime": "1.0", "threads": 1}

LONG = {**HERE, "note": "x" * 200_000}


def kill_writers(count: int) -> None:
    """Let processes write without end, and kill each at a random moment; the memory holds a whole result after each."""
    memory, rng = ResultMemory(os.environ["MEMORY"]), np.random.default_rng(0)
    memory.remember(result(note=LONG["note"]))
    for _ in range(count):
        writer = os.fork()
        while writer == 0:
            memory.remember(result(note=LONG["note"]))
        time.sleep(float(rng.uniform(0.001, 0.02)))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)
        assert [one.speedup for one in memory.recall("f" * 32, LONG)] == [1.5]


def result(fingerprint: str = "f" * 32, speedup: float = 1.5, **changes: object) -> RememberedResult:
    recording = Recording((RecordedStep("Rule", "deployment", 1, refused=()),), fingerprint)
    return RememberedResult(recording, speedup, 60.0, {**HERE, **changes})


class TestRecall:
    def test_finds_what_was_remembered(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path / "new" / "folder")
        assert memory.recall("f" * 32, HERE) == []
        assert memory.remember(result())
        assert ResultMemory(memory.folder).recall("f" * 32, HERE) == [result()]
        assert memory.recall("e" * 32, HERE) == []

    @pytest.mark.parametrize("change", [{"device": "other"}, {"onnxruntime": "2.0"}, {"threads": 4}])
    def test_another_context_comes_second_and_says_so(self, tmp_path: Path, change: dict[str, object]) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.2))
        time.sleep(0.01)
        memory.remember(result(speedup=3.0, **change))
        found = memory.recall("f" * 32, HERE)
        assert [(one.speedup, one.same_context) for one in found] == [(1.2, True), (3.0, False)]

    def test_the_same_context_is_replaced(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.2))
        memory.remember(result(speedup=1.4))
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.4]

    def test_those_not_used_for_longest_go(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path, most=3)
        for i in range(3):
            memory.remember(result(f"{i}" * 32))
            os.utime(memory._path(f"{i}" * 32, HERE), (1000.0 + i, 1000.0 + i))
        memory.used(result("0" * 32))
        memory.remember(result("3" * 32))
        assert [bool(memory.recall(f"{i}" * 32, HERE)) for i in range(4)] == [True, False, True, True]


class TestFaults:
    @pytest.mark.parametrize(
        "text", ["", "{", "[]", "{}", "null", '{"format": "rewritegym.result", "format_version": 1}', "\x00" * 100]
    )
    def test_corrupt_files_are_moved_aside(self, tmp_path: Path, text: str) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result())
        file = next(tmp_path.glob("*.json"))
        file.write_text(text)
        with pytest.warns(RuntimeWarning, match="corrupt"):
            assert memory.recall("f" * 32, HERE) == []
        assert not file.exists()
        assert next(tmp_path.glob("*.corrupt")).read_text() == text
        assert memory.remember(result())
        assert memory.recall("f" * 32, HERE) == [result()]

    def test_files_of_a_newer_version_are_left(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result())
        file = next(tmp_path.glob("*.json"))
        file.write_text(json.dumps(json.loads(file.read_text()) | {"format_version": 99}))
        assert memory.recall("f" * 32, HERE) == []
        assert file.exists()

    def test_a_folder_that_is_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        memory = ResultMemory(tmp_path / "file")
        with pytest.warns(RuntimeWarning, match="not remembered"):
            assert not memory.remember(result())
        assert memory.recall("f" * 32, HERE) == []

    def test_killed_writers_leave_whole_files(self, tmp_path: Path) -> None:
        script = "from tests.graph_rewrite.replay import test_memory; test_memory.kill_writers(40)"
        done = subprocess.run([sys.executable, "-c", script], env={**os.environ, "MEMORY": str(tmp_path)}, timeout=60)
        assert done.returncode == 0
        assert ResultMemory(tmp_path).recall("f" * 32, LONG)[0].speedup == 1.5
        assert not list(tmp_path.glob("*.corrupt"))

    def test_what_killed_writers_left_is_removed(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        left, recent = tmp_path / ".a.json.12.ff", tmp_path / ".b.json.13.ff"
        left.write_text("{")
        recent.write_text("{")
        os.utime(left, (1000.0, 1000.0))
        memory.remember(result())
        assert not left.exists()
        assert recent.exists()
