"""``python -m graph_rewrite {rules,egraph} ...``: the command line of the library; ``rules`` is also reached as
``rewritegym rules ...``."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib import import_module

USAGE = """usage: python -m graph_rewrite rules {list,show,explain,verify,catalogue,...} ...
       python -m graph_rewrite egraph extract FILE ...

python -m graph_rewrite rules --help and egraph --help tell the arguments;
python -m graph_rewrite.zoo lists and exports models."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status; 2 for a wrong command."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] in (["rules"], ["egraph"]):
        module = "graph_rewrite.rulebook.cli" if arguments[0] == "rules" else "graph_rewrite.egraph.cli"
        try:
            status: int = import_module(module).main(arguments[1:])
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
