"""``python -m graph_rewrite {rules,egraph,mutate} ...``: the command line of the library; ``rules`` is also a
command of ``rewritegym``."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from graph_rewrite.system.commands import Command, Program

COMMANDS = {
    "rules": Command("graph_rewrite.rulebook.cli", "list the rules, show one, verify them, or generate more"),
    "egraph": Command("graph_rewrite.egraph.cli", "extract the cheapest term from an e-graph in a file"),
    "mutate": Command("graph_rewrite.mutate.cli", "list partially equivalent rewrites of a model"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand and return its exit status; 2 for a wrong command."""
    return Program("python -m graph_rewrite", COMMANDS).main(argv)


if __name__ == "__main__":
    sys.exit(main())
