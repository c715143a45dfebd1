"""Write tables and plots of results files beside them: `python -m benchmarks.figures FILE...`.

    python -m benchmarks.figures benchmarks/results/zen4/cpu-t1.json
    python -m benchmarks.figures --check

With --check nothing is written: an exit status of 1 says that a file beside a results file, or a figure that README or
docs copy, is not what would be made now.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from agents.commands.common import stderr_console
from benchmarks.figures.rows import shown_path
from benchmarks.figures.writing import stale, write
from graph_rewrite.system.commands import run_command

RESULTS = Path(__file__).resolve().parents[1] / "results"


@dataclass(frozen=True)
class Arguments:
    """Write tables and plots of results files of benchmarks.results."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Results files; by default all of benchmarks/results."""
    check: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Write nothing, and name what is not as it would be made now."""


def results_files() -> list[Path]:
    """Return the results files of all machines in the repository."""
    return sorted(path for path in RESULTS.glob("*/*.json") if not path.stem.endswith("-headroom"))


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.figures")

    def command() -> int:
        console, files = stderr_console(), arguments.files or tuple(results_files())
        if not arguments.check:
            for path in files:
                for made in write(path):
                    print(shown_path(made))
            return 0
        old = [file for path in files for file in stale(path)]
        for file in old:
            console.print(f"{shown_path(file)} is not what its results give; write it anew", highlight=False)
        return int(bool(old))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
