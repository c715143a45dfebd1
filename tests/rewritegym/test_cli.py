"""The console script: what it says and returns for commands right, wrong, interrupted and cut off."""

import importlib.util
import os
import subprocess
import sys
import types
from collections.abc import Callable

import pytest

from rewritegym import __version__, cli


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], int]], None]:
    """Puts a main function behind the subcommand `doctor`."""

    def put(main: Callable[[list[str]], int]) -> None:
        module = types.ModuleType("stand_in")
        module.main = main  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "stand_in", module)
        monkeypatch.setitem(cli.COMMANDS, "doctor", cli.Command("stand_in", "help"))

    return put


def test_arguments_and_status_pass_through(install: Callable[..., None]) -> None:
    seen: list[list[str]] = []

    def main(argv: list[str]) -> int:
        seen.append(argv)
        return 7

    install(main)
    assert cli.main(["doctor", "--json", "--help"]) == 7
    assert seen == [["--json", "--help"]]


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_its_module(command: str) -> None:
    assert importlib.util.find_spec(cli.COMMANDS[command].module) is not None


@pytest.mark.parametrize("argv", [["trian"], ["trian", "--model", "bert"]])
def test_unknown_command_lists_the_commands(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(argv) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no command 'trian'" in printed.err
    assert all(f"  {name} " in printed.err for name in cli.COMMANDS)


def test_no_command_is_an_error_with_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("usage:")


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--help"]) == 0
    assert capsys.readouterr().out.startswith("usage:")
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rewritegym {__version__}\n"


def test_interrupt_returns_130_without_a_traceback(
    install: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def main(argv: list[str]) -> int:
        raise KeyboardInterrupt

    install(main)
    assert cli.main(["doctor"]) == 130
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.skipif(sys.platform == "win32", reason="pipes break differently on Windows")
def test_reader_that_went_away_ends_the_command_quietly() -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    command = [sys.executable, "-m", "rewritegym", "--help"]
    with os.fdopen(write_end, "wb") as closed_pipe:
        done = subprocess.run(command, stdout=closed_pipe, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (141, "")
