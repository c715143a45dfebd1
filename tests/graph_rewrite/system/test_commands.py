"""Mistakes of users are one line, bugs show their traceback."""

import errno
import sys

import pytest

from graph_rewrite.errors import InvalidRewriteError, MachineError, UserError
from graph_rewrite.latency import BaselineError, LockTimeout, ProviderError, WorkerStartError
from graph_rewrite.system.commands import Command, Program, run_command


def failing(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    "error",
    [
        UserError("threads must be 1 or more"), MachineError("no such device"), ProviderError("no CUDA"),
        BaselineError("it crashed"), WorkerStartError("no Python"), FileNotFoundError("no such model"),
        PermissionError(13, "not allowed"), LockTimeout("process 7 measures since an hour"),
    ],
)  # fmt: skip
def test_what_a_user_can_mend_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lambda: failing(error)) == 2
    assert capsys.readouterr().err == f"error: {error}\n"


@pytest.mark.parametrize(
    "error",
    [
        ValueError("a bug"), RuntimeError("a bug"), KeyError("a bug"), InvalidRewriteError("not caught by a search"),
        OSError("made up"), NotImplementedError("a bug"),
    ],
)  # fmt: skip
def test_a_bug_goes_through(error: Exception) -> None:
    with pytest.raises(type(error), match=str(error.args[0])):
        run_command(lambda: failing(error))


def test_interrupts_and_statuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lambda: failing(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "interrupted\n"
    assert run_command(lambda: 7) == 7


def test_a_program_without_a_version_has_no_such_option(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program("program", {"run": Command("no.such.module", "run it")})
    assert program.main(["--version"]) == 2
    assert "there is no command '--version'" in capsys.readouterr().err
    assert program.main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: program COMMAND")
    assert "no.such.module" not in sys.modules


def test_a_command_that_is_misspelt_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    program = Program("program", {"optimize": Command("no.such.module", "run it")})
    assert program.main(["optimise", "model.onnx"]) == 2
    assert "there is no command 'optimise'; did you mean optimize?" in capsys.readouterr().err
    assert program.main(["bake"]) == 2
    assert "did you mean" not in capsys.readouterr().err


def test_a_full_disk_without_a_name_says_where_temporary_files_lie(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", "/small")
    assert run_command(lambda: failing(OSError(errno.ENOSPC, "No space left on device"))) == 2
    hint = "temporary files lie in /small, and REWRITEGYM_WORKSPACE names another folder for them"
    assert capsys.readouterr().err == f"error: [Errno 28] No space left on device; {hint}\n"
    assert run_command(lambda: failing(OSError(errno.ENOSPC, "No space left on device", "/a/b"))) == 2
    assert capsys.readouterr().err == "error: [Errno 28] No space left on device: '/a/b'\n"
