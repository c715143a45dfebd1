"""The output of an optimisation: refused before any time is spent, and never lost at the end."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

import rewritegym
from agents.commands import report
from agents.optimization.output import check_output, saved
from agents.optimization.reports import check_report
from graph_rewrite.errors import UserError
from graph_rewrite.onnx_files.loading import ModelLoadError
from graph_rewrite.replay import RecordedStep, Recording
from rewritegym.cli import main

MODEL = Path("model.onnx")
UNWRITABLE = Path("/proc")
needs_proc = pytest.mark.skipif(not UNWRITABLE.is_dir(), reason="this system has no folder that even root cannot write")


class Outcome:
    """Saves to folders that are not full."""

    def __init__(self, *full: Path) -> None:
        self.full = full

    def save(self, output: Path) -> Path:
        if not self.full or output.parent in self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        output.write_text("the result")
        return output


@needs_proc
def test_a_folder_that_cannot_be_written_to_is_refused_at_once() -> None:
    with pytest.raises(UserError, match=r"^/proc/out\.onnx cannot be written: .*; name a file in another folder"):
        check_output(MODEL, UNWRITABLE / "out.onnx", overwrite=False)
    with pytest.raises(UserError, match=r"^--report /proc/report\.html cannot be written"):
        check_report(UNWRITABLE / "report.html", MODEL, None, overwrite=False)
    assert check_output(MODEL, UNWRITABLE / "out.onnx", overwrite=False, dry=True) == UNWRITABLE / "out.onnx"


def test_devices_and_pipes_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(UserError, match="pipe is no regular file"):
        check_output(MODEL, pipe, overwrite=True)
    with pytest.raises(UserError, match=r"--report .*pipe is no regular file"):
        check_report(pipe, MODEL, None, overwrite=True)
    assert report.main([str(tmp_path / "result.json"), str(pipe), "--overwrite"]) == 2
    assert pipe.is_fifo()


def test_the_check_leaves_nothing(tmp_path: Path) -> None:
    assert check_output(MODEL, tmp_path / "out.onnx", overwrite=False) == tmp_path / "out.onnx"
    assert list(tmp_path.iterdir()) == []


def test_a_result_that_finds_no_space_is_saved_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full, free = tmp_path / "full", tmp_path / "free"
    free.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(free))
    outcome: Any = Outcome(full)
    with pytest.raises(UserError, match=r"full/out\.onnx cannot be written: No space left") as error:
        saved(outcome, full / "out.onnx")
    [found] = free.rglob("out.onnx")
    assert str(found) in str(error.value)
    assert found.read_text() == "the result"


def test_a_machine_without_any_space_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outcome: Any = Outcome()
    with pytest.raises(UserError, match=r"cannot be written: No space left on device; nor can .*: No space left"):
        saved(outcome, tmp_path / "out.onnx")


def test_what_can_be_saved_is(tmp_path: Path) -> None:
    outcome: Any = Outcome(tmp_path / "other")
    assert saved(outcome, tmp_path / "out.onnx") == tmp_path / "out.onnx"


def test_a_mistyped_input_is_told_before_the_output(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "modles" / "net.onnx"
    for line in (["optimize", str(path)], ["apply", str(actions_of_nothing(tmp_path)), str(path)]):
        assert main(line) == 2
        assert "modles/net.onnx: cannot be opened: No such file" in capsys.readouterr().err.replace("\n", "")
    with pytest.raises(ModelLoadError, match="cannot be opened"):
        rewritegym.optimize(path, path.with_name("out.onnx"))


def actions_of_nothing(folder: Path) -> Path:
    return Recording((RecordedStep("MulOne", "site", 1),)).write(folder / "actions.json")
