"""The console script ``rewritegym``: finds the subcommand, imports what it needs, and hands the arguments on."""

import os
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import NamedTuple

from rewritegym import __version__

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class Command(NamedTuple):
    """A subcommand: the module whose ``main(argv) -> int`` carries it out, and one line of help."""

    module: str
    help: str


COMMANDS = {
    "train": Command("agents.commands.train", "train an agent on a model and write the optimised model"),
    "evaluate": Command("agents.commands.evaluate", "optimise a model with a trained agent and compare agents"),
    "rules": Command("graph_rewrite.rulebook.cli", "list the rules, show one, or explain where they nearly applied"),
    "zoo": Command("graph_rewrite.zoo.__main__", "list the model architectures, or export one to ONNX"),
    "doctor": Command("rewritegym.doctor", "print provider, CPU flags, versions, peak speed and noise of this machine"),
}


def usage() -> str:
    """The help text, one line per subcommand."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.help}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            "usage: rewritegym COMMAND [ARGUMENTS]",
            "",
            *lines,
            "",
            "rewritegym COMMAND --help tells a command's arguments; --version prints the version.",
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one subcommand and returns the exit status: its own, 2 for a wrong command, 130 after Ctrl-C."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # a reader that has gone away shows here, not in the interpreter's last breath
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still buffered must go somewhere, or the interpreter complains when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return status


def _dispatch(arguments: list[str]) -> int:
    if not arguments:
        print(usage(), file=sys.stderr)
        return EXIT_USAGE
    name, *rest = arguments
    if name in ("-h", "--help", "help"):
        print(usage())
        return 0
    if name == "--version":
        print(f"rewritegym {__version__}")
        return 0
    if name not in COMMANDS:
        print(f"rewritegym: there is no command {name!r}\n\n{usage()}", file=sys.stderr)
        return EXIT_USAGE
    command: Callable[[list[str]], int] = import_module(COMMANDS[name].module).main
    return command(rest)
