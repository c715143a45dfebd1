"""``python -m graph_rewrite rules ...``: the command line of the library, also reached as ``rewritegym rules ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

USAGE = """usage: python -m graph_rewrite rules {list,show,explain} ...

python -m graph_rewrite rules --help tells the arguments; python -m graph_rewrite.zoo lists and exports models."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; 2 for a wrong command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["rules"]:
        from graph_rewrite.rules.cli import main as rules

        try:
            status = rules(arguments[1:])
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader has gone away; what is still buffered must go somewhere, or the interpreter complains.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 141
        return status
    asked = arguments[:1] in (["-h"], ["--help"])
    print(USAGE, file=sys.stdout if asked else sys.stderr)
    return 0 if asked else 2


if __name__ == "__main__":
    sys.exit(main())
