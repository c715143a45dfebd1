"""Command lines: programs with subcommands, and how errors of a command end.

A mistake of the user is one line on standard error. A bug shows its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import NamedTuple

from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.system.extras import explain_import_error

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class Command(NamedTuple):
    """A subcommand: the module whose ``main(argv) -> int`` carries it out, and one line of help."""

    module: str
    help: str


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
        """Run one subcommand and return its exit status, or 2 for a wrong command; errors end as in `run_command`."""
        arguments = list(sys.argv[1:] if argv is None else argv)
        return run_command(lambda: self._dispatch(arguments))

    def _dispatch(self, arguments: list[str]) -> int:
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
        command: Callable[[list[str]], int] = import_module(self.commands[name].module).main
        return command(rest)


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
        if isinstance(error, OSError) and error.errno is None and not isinstance(error, FileNotFoundError):
            raise
        print(f"error: {error}", file=sys.stderr)
        return EXIT_USAGE
    except ModuleNotFoundError as error:
        sentence = explain_import_error(error)
        if sentence is None:
            raise
        print(f"error: {sentence}", file=sys.stderr)
        return EXIT_USAGE
    return status
