"""Command lines: programs with subcommands, and how errors of a command end.

A mistake of the user is one line on standard error. A bug shows its traceback.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.system.extras import explain_import_error
from graph_rewrite.system.program_start import program_began
from graph_rewrite.system.scratch import WORKSPACE
from graph_rewrite.system.signals import answer_signals, hold_signals, ignore_signals, interrupting_on_term

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class Command(NamedTuple):
    """A subcommand: the module whose ``main(argv) -> int`` carries it out, and one line of help."""

    module: str
    help: str
    timed: bool = False
    """True where ``main`` also takes ``began``: the moment of `time.monotonic` from which its time limit counts."""


@dataclass(frozen=True)
class Program:
    """A program with subcommands. A command's module is imported when the command is asked for."""

    name: str
    commands: Mapping[str, Command]
    version: str = ""
    """The version that ``--version`` prints; without one there is no such option."""

    def usage(self) -> str:
        """Return the help text, one line per subcommand."""
        width = max(map(len, self.commands))
        lines = [f"  {name:<{width}}  {command.help}" for name, command in self.commands.items()]
        last = f"{self.name} COMMAND --help tells a command's arguments"
        last += "; --version prints the version." if self.version else "."
        return "\n".join([f"usage: {self.name} COMMAND [ARGUMENTS]", "", *lines, "", last])

    def main(self, argv: Sequence[str] | None = None) -> int:
        """Run one subcommand and return its exit status, or 2 for a wrong command; errors end as in `run_command`.

        Without arguments the process is this program's own: the arguments are those of the command line, time limits
        count from its start, and SIGTERM does what Ctrl-C does, unless the command answers it otherwise.
        """
        if argv is not None:
            return run_command(lambda: self._dispatch(list(argv), time.monotonic()))
        hold_signals()
        with interrupting_on_term():
            status = run_command(lambda: self._dispatch(sys.argv[1:], program_began()))
        ignore_signals()
        return status

    def _dispatch(self, arguments: list[str], began: float) -> int:
        if not arguments:
            print(self.usage(), file=sys.stderr)
            return EXIT_USAGE
        name, *rest = arguments
        if name in ("-h", "--help", "help"):
            print(self.usage())
            return 0
        if name == "--version" and self.version:
            print(f"{self.name} {self.version}")
            return 0
        if name not in self.commands:
            near = get_close_matches(name, self.commands, 1)
            meant = f"; did you mean {near[0]}?" if near else ""
            print(f"{self.name}: there is no command {name!r}{meant}\n\n{self.usage()}", file=sys.stderr)
            return EXIT_USAGE
        command = self.commands[name]
        main: Callable[..., int] = import_module(command.module).main
        answer_signals()
        return main(rest, began=began) if command.timed else main(rest)


def run_command(main: Callable[[], int]) -> int:
    """Run a command and return its exit status.

    Errors that a user can mend (`UserError`, `MachineError`, what the operating system says of a file, and an optional
    library that is not installed) are printed as one line, with status 2; Ctrl-C gives 130, a
    reader of the output that went away 141. All other exceptions are bugs and go through.
    """
    try:
        status = main()
        sys.stdout.flush()  # a reader that has gone away shows here, not in the interpreter's last breath
    except KeyboardInterrupt as interruption:
        print(": ".join(["interrupted", *map(str, interruption.args)]), file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still buffered must go somewhere, or the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    except (UserError, MachineError, OSError) as error:
        # An OSError without a number is no answer of the operating system but something that a library made up.
        meant = isinstance(error, UserError | MachineError | FileNotFoundError)
        if isinstance(error, OSError) and error.errno is None and not meant:
            raise
        print(f"error: {error}{_where_room_lacks(error)}", file=sys.stderr)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        sentence = explain_import_error(error)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        return EXIT_USAGE
    return status


def _where_room_lacks(error: Exception) -> str:
    """Return what to do about a full disk where the error does not tell which; empty for other errors."""
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC or error.filename is not None:
        return ""
    folder = os.environ.get(WORKSPACE) or tempfile.gettempdir()
    return f"; temporary files lie in {folder}, and {WORKSPACE} names another folder for them"
