"""Write tables and plots of results files beside them: `python -m benchmarks.figures FILE...`.

    python -m benchmarks.figures benchmarks/results/zen4/cpu-t1.json
    python -m benchmarks.figures --check

Without files, all results of the repository are written anew, and README and docs copy what they quote
(`benchmarks.figures.quotes`). With --check nothing is written: an exit status of 1 says that a file beside a results
file is not what would be made now, or that a page has a figure that no command makes or no results file holds.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from agents.commands.common import stderr_console
from benchmarks import RESULTS
from benchmarks.figures.quotes import page_problems, updated
from benchmarks.figures.quotes import pages as quoting_pages
from benchmarks.figures.rows import shown_path
from benchmarks.figures.writing import stale, write
from benchmarks.protocol.table import table_files
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Write tables and plots of results files of benchmarks.results."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Results files; by default all of benchmarks/results, and the pages that quote them."""
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write nothing, and name what is not as it would be made now."""


def rewritten(page: Path) -> bool:
    """Copy results anew into a page that quotes them. Return whether that changed it."""
    old = page.read_text("utf-8")
    new = updated(old)
    if new != old:
        replace_file(page, new)
    return new != old


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.figures")

    def command() -> int:
        console, files = stderr_console(), arguments.files or tuple(table_files(RESULTS))
        pages = () if arguments.files else quoting_pages()
        if not arguments.check:
            made = [file for path in files for file in write(path)]
            for file in [*made, *(page for page in pages if rewritten(page))]:
                print(shown_path(file))
            return 0
        wrong = [f"{shown_path(file)} is not what its results give" for path in files for file in stale(path)]
        wrong += page_problems(pages)
        for what in wrong:
            console.print(what, highlight=False, markup=False)
        return int(bool(wrong))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
