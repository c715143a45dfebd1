"""Write the papers' tables beside ours: `python -m benchmarks.papers [NAME ...]`.

    python -m benchmarks.papers --list
    python -m benchmarks.papers xrlflow-table-1 --measure

A table is written into `benchmarks/results/papers/tables/NAME.md`, out of what the paper reports and the results file
of our command; docs/reference/reproductions.md copies it. With --measure the command is run first, which takes hours
for most tables.
"""

from __future__ import annotations

import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from benchmarks.papers.catalogue import TABLES
from benchmarks.papers.table import ROOT, PaperTable
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command

FOLDER = Path("benchmarks/results/papers/tables")


@dataclass(frozen=True)
class Arguments:
    """Write the papers' tables beside ours."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Names of tables; all by default."""
    measure: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Run the command of each named table first."""
    list: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print names and commands, and do nothing."""


def chosen(names: tuple[str, ...]) -> list[PaperTable]:
    """Return the tables of these names, all without any.

    Raises:
        UserError: there is no such table.
    """
    known = {table.name: table for table in TABLES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise UserError(f"no table is named {', '.join(unknown)}; there are {', '.join(known)}")
    return [known[name] for name in names or known]


def measure(table: PaperTable) -> None:
    """Run the command of a table.

    Raises:
        UserError: it has none.
        MachineError: it fails.
    """
    if table.command is None:
        raise UserError(f"{table.name}: there is no command for it yet. {table.lacks}")
    words = [sys.executable, *table.command[1:]]
    if subprocess.run(words, cwd=ROOT, check=False).returncode:
        raise MachineError(f"{table.name}: {shlex.join(table.command)} failed")


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.papers")

    def command() -> int:
        tables = chosen(arguments.names)
        if arguments.measure and not arguments.names:
            raise UserError("name the tables to measure: all of them take days")
        for table in tables:
            if arguments.list:
                print(f"{table.name}: {shlex.join(table.command) if table.command else 'no command yet'}")
                continue
            if arguments.measure:
                measure(table)
            (ROOT / FOLDER).mkdir(parents=True, exist_ok=True)
            replace_file(ROOT / FOLDER / f"{table.name}.md", table.text())
            print(FOLDER / f"{table.name}.md")
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
