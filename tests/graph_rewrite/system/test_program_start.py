"""Programs from the start of their process to their end: what time limits count, and signals around a command."""

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from graph_rewrite.system import program_start
from graph_rewrite.system.program_start import program_began

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals end processes otherwise on Windows")
ROOT = Path(__file__).resolve().parents[3]
SIGNALS = [signal.SIGINT, signal.SIGTERM]

PROGRAM = """
import time
first = time.monotonic()
import sys
from graph_rewrite.system.commands import Command, Program
sys.exit(Program("program", {"run": Command("command", "run it", timed=True)}).main())
"""


def run_program(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose only subcommand is a module with this text."""
    folder.joinpath("command.py").write_text(textwrap.dedent(command))
    folder.joinpath("program.py").write_text(PROGRAM)
    return subprocess.run(
        [sys.executable, str(folder / "program.py"), "run"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


def test_the_time_of_a_command_counts_from_the_start_of_its_process(tmp_path: Path) -> None:
    done = run_program(
        tmp_path,
        """
        import __main__

        def main(argv, began):
            print(began < __main__.first)
            return 3
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (3, "True\n", "")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_while_a_command_is_imported_waits_for_the_end_of_the_import(
    tmp_path: Path, number: signal.Signals
) -> None:
    done = run_program(
        tmp_path,
        f"""
        import os

        os.kill(os.getpid(), {int(number)})
        print("imported")

        def main(argv, began):
            print("begun")
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "imported\n", "interrupted\n")


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_after_a_command_does_not_change_its_status(tmp_path: Path, number: signal.Signals) -> None:
    done = run_program(
        tmp_path,
        f"""
        import atexit, os

        def main(argv, began):
            atexit.register(os.kill, os.getpid(), {int(number)})
            return 0
        """,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_process_that_ran_something_else_before_counts_from_this_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_start, "MOST_STARTUP_S", 0.0)
    assert program_began() == program_start._FIRST


def test_without_the_start_of_the_process_the_import_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(program_start, "_STAT", tmp_path / "stat")
    assert program_began() == program_start._FIRST
    (tmp_path / "stat").write_text("1 (a program) S 1 1")
    assert program_began() == program_start._FIRST
