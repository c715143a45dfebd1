"""Write the means of what steps save, by which `regional` orders what it tries.

    python -m benchmarks.learning.step_means
    python -m benchmarks.learning.step_means --table mine.npz --out mine.json

The same table gives the same file. `python -m benchmarks.learning.search_order` tells what they are worth on
architectures that they were not learnt from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.effects.learning_means import learnt_means
from agents.effects.step_means import SHIPPED as MEANS
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Write the means of what steps save."""

    table: Path = SHIPPED
    """A table of windows."""
    out: Path = MEANS
    """The file of the means."""


def _run(arguments: Arguments) -> int:
    table = WindowTable.load(arguments.table)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    learnt_means(table).save(arguments.out)
    print(json.dumps({"means": str(arguments.out), "bytes": arguments.out.stat().st_size, "steps": table.steps}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.step_means")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
