"""The memory of results: what is found again, and what broken files and killed processes do to it."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graph_rewrite.errors import UserError
from graph_rewrite.replay import Recording
from graph_rewrite.replay.memory import MOST_FAILURES, ResultMemory
from graph_rewrite.replay.recording import RecordedStep
from graph_rewrite.replay.remembered import RememberedResult
from graph_rewrite.system.atomic_files import unfinished_name

HERE = {"device": "this", "onnxruntime": "1.0", "threads": 1}

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda parts: st.lists(parts, max_size=3) | st.dictionaries(st.text(max_size=3), parts, max_size=3),
    max_leaves=6,
)
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


def result(
    fingerprint: str = "f" * 32, speedup: float = 1.5, *, rule: str = "Rule", any_size: str = "", **changes: object
) -> RememberedResult:
    recording = Recording((RecordedStep(rule, "deployment", 1, refused=()),), fingerprint, any_size)
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
            os.utime(memory.path_of(result(f"{i}" * 32)), (1000.0 + i, 1000.0 + i))
        memory.used(result("0" * 32), HERE)
        memory.remember(result("3" * 32))
        assert [bool(memory.recall(f"{i}" * 32, HERE)) for i in range(4)] == [True, False, True, True]


class TestTheBetterIsKept:
    """The faster of two results in one context stays, until it fails or is measured anew."""

    def test_a_slower_one_does_not_replace_it(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.4, rule="A"))
        memory.remember(replace(result(speedup=1.2, rule="B"), seconds=600.0))
        [found] = memory.recall("f" * 32, HERE)
        assert (found.speedup, found.recording.steps[0].rule) == (1.4, "A")
        assert found.seconds == 600.0, "the longer search found nothing better"

    def test_the_same_rewrites_count_as_measured_last(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        for speedup in (1.4, 1.3):
            memory.remember(result(speedup=speedup))
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.3]

    def test_one_that_failed_gives_way(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.4, rule="A"))
        memory.failed(memory.recall("f" * 32, HERE)[0], HERE)
        memory.remember(result(speedup=1.2, rule="B"))
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.2]

    def test_one_that_was_corrected_is_compared_by_the_new_number(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.4, rule="A"))
        memory.corrected(memory.recall("f" * 32, HERE)[0], 1.1)
        memory.remember(result(speedup=1.2, rule="B"))
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.2]

    def test_other_contexts_are_not_compared(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result(speedup=1.4, rule="A"))
        memory.remember(result(speedup=1.2, rule="B", device="other"))
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.4, 1.2]


class TestFailures:
    def test_what_failed_comes_last_and_is_at_last_not_tried(self, tmp_path: Path) -> None:
        memory, there = ResultMemory(tmp_path), {**HERE, "threads": 4}
        memory.remember(result(speedup=1.4))
        memory.remember(result(speedup=1.3, threads=4))
        for _ in range(MOST_FAILURES - 1):
            memory.failed(memory.recall("f" * 32, HERE)[-1 if _ else 0], HERE)
            assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.3, 1.4]
        memory.failed(memory.recall("f" * 32, HERE)[-1], HERE)
        assert [one.speedup for one in memory.recall("f" * 32, HERE)] == [1.3]
        assert [one.speedup for one in memory.recall("f" * 32, there)] == [1.3, 1.4], "it failed in one context alone"

    def test_a_success_ends_a_row_of_failures(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result())
        for _ in range(2 * MOST_FAILURES):
            memory.failed(memory.recall("f" * 32, HERE)[0], HERE)
            memory.used(memory.recall("f" * 32, HERE)[0], HERE)
        assert memory.recall("f" * 32, HERE) == [result()]

    def test_what_was_removed_is_not_written_again(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.failed(result(), HERE)
        assert list(tmp_path.iterdir()) == []


class TestOtherSizes:
    def test_come_last_and_only_where_they_are_asked_for(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result("a" * 32, 1.3, any_size="c" * 32))
        memory.remember(result("b" * 32, 1.2, any_size="c" * 32, device="other"))
        memory.remember(result("d" * 32, 1.1, any_size="e" * 32))
        found = memory.recall("b" * 32, HERE, "c" * 32)
        assert [(one.speedup, one.same_context) for one in found] == [(1.2, False), (1.3, False)]
        assert [one.speedup for one in memory.recall("b" * 32, HERE)] == [1.2]


class TestReadOnly:
    def test_nothing_is_changed(self, tmp_path: Path) -> None:
        ResultMemory(tmp_path).remember(result())
        (tmp_path / f"-{'f' * 32}-x.json").write_text("{")
        before = {path: path.read_bytes() for path in tmp_path.iterdir()}
        memory = ResultMemory(tmp_path, read_only=True)
        [found] = memory.recall("f" * 32, HERE)
        memory.used(found, HERE)
        memory.failed(found, HERE)
        assert not memory.remember(result(speedup=2.0))
        assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


ABSURD = [
    ("speedup", "fast", "its speedup is no number"),
    ("speedup", True, "its speedup is no number"),
    ("speedup", 1e300, "its speedup is 1e\\+300"),
    ("speedup", math.nan, "its speedup is no number"),
    ("seconds", math.inf, "its seconds is no number"),
    ("seconds", -1.0, "its seconds is -1"),
    ("context", [], "its context is no object"),
    ("failures", {"x": -1}, "its failures are no counts"),
    ("failures", [1], "its failures are no counts"),
    ("path", [[2, 1.1]], "its path leads to step 2 of 1"),
    ("path", [[1, 1.1], [1, 1.2]], "its path leads to step 1 of 1 after step 1"),
    ("path", [[0.5, 1.1]], "no number of steps"),
    ("path", "path", "its path is no list"),
    ("format_version", "1", "format_version is no whole number"),
    ("actions", {"rewrites": []}, "it has 0 steps"),
    ("actions", None, "no recorded actions"),
]


class TestFromElsewhere:
    @pytest.mark.parametrize(("name", "value", "said"), ABSURD)
    def test_absurd_entries_are_skipped_with_one_sentence(
        self, tmp_path: Path, name: str, value: object, said: str
    ) -> None:
        memory = ResultMemory(tmp_path)
        memory.remember(result())
        file = next(tmp_path.glob("*.json"))
        file.write_text(json.dumps(json.loads(file.read_text()) | {name: value}))
        with pytest.warns(RuntimeWarning, match=said) as warned:
            assert memory.recall("f" * 32, HERE) == []
        assert "\n" not in str(warned[0].message)

    @given(st.data())
    @settings(max_examples=150, deadline=None)
    def test_no_json_ends_a_run(self, data: st.DataObject) -> None:
        values = result().to_json()
        step = values["actions"]["steps"][0]
        part = data.draw(st.sampled_from([values, values["actions"], step]))
        part[data.draw(st.sampled_from(sorted(part)))] = data.draw(JSON)
        try:
            read = RememberedResult.from_json(values)
        except UserError:
            return
        assert RememberedResult.from_json(json.loads(json.dumps(read.to_json()))).to_json() == read.to_json()


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
        newer = json.dumps(json.loads(file.read_text()) | {"format_version": 99})
        file.write_text(newer)
        assert memory.recall("f" * 32, HERE) == []
        assert not memory.remember(result())
        assert file.read_text() == newer

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

    def test_what_killed_writers_of_this_machine_left_goes_when_results_are_recalled(self, tmp_path: Path) -> None:
        child = subprocess.Popen([sys.executable, "-c", ""])
        child.wait()
        mine = unfinished_name(tmp_path / "a.json").name
        left = tmp_path / mine.replace(f".{os.getpid()}.", f".{child.pid}.")
        left.write_text("{")
        assert ResultMemory(tmp_path).recall("f" * 32, HERE) == []
        assert not left.exists()

    def test_what_killed_writers_left_is_removed(self, tmp_path: Path) -> None:
        memory = ResultMemory(tmp_path)
        left, recent = tmp_path / ".a.json.12.ff", tmp_path / ".b.json.13.ff"
        left.write_text("{")
        recent.write_text("{")
        os.utime(left, (1000.0, 1000.0))
        memory.remember(result())
        assert not left.exists()
        assert recent.exists()
