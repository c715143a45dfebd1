"""Measure how far models, results and peers are from the machine's limit: `python -m benchmarks.headroom FILE`.

    python -m benchmarks.headroom benchmarks/results/zen4/cpu-t1.json
    python -m benchmarks.headroom --models bert-tiny squeezenet --json

With a results file, latencies are those of its judgement; the default agent's rewrites are replayed and profiled. The
JSON and the tables lie beside that file, and its page takes them in. Run it on the machine of the results.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console

from agents.commands.common import stderr_console
from agents.reporting.runs import write_json
from benchmarks.figures.headroom_tables import headroom_tables
from benchmarks.figures.rows import read_results
from benchmarks.figures.writing import write
from benchmarks.headroom.models import headroom_of, this_machine
from graph_rewrite import zoo
from graph_rewrite.errors import MachineError
from graph_rewrite.latency.device import device_name
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Measure how far models, results and peers are from the machine's limit."""

    file: tyro.conf.Positional[Path | None] = None
    """A results file of benchmarks.results; without one only originals are measured, and nothing is written."""
    models: tuple[str, ...] = ()
    """Names of the zoo; by default all of the results file, or the whole zoo."""
    threads: int | None = None
    """Threads per inference; by default those of the results file, or one."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object instead of tables."""


def run(arguments: Arguments, console: Console) -> dict[str, Any]:
    """Measure all models, and write files where there are results.

    Raises:
        UserError: the file is no results file, or there is no such model.
        MachineError: no worker process starts.
    """
    results = None if arguments.file is None else read_results(arguments.file)
    models = arguments.models or tuple(zoo.names() if results is None else results.models)
    threads = arguments.threads or (1 if results is None else int(results.protocol.get("threads", 1)))
    found: dict[str, Any] = {"machine": device_name("cpu"), "threads": threads, "models": []}
    with this_machine(threads) as profiler:
        for model in models:
            try:
                entry = headroom_of(model, profiler, threads, results)
            except MachineError as error:  # of this model: the others go on
                entry = {"model": model, "failure": str(error)}
            found["models"].append(entry)
            console.print(f"{model}: {entry.get('failure', 'profiled')}", highlight=False)
    if arguments.file is not None:
        path = arguments.file.with_name(f"{arguments.file.stem}-headroom.json")
        write_json(path, found)
        replace_file(path.with_suffix(".md"), headroom_tables(found))
        write(arguments.file)
    return found


def main() -> int:
    """Run the command and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.headroom")

    def command() -> int:
        found = run(arguments, stderr_console())
        print(json.dumps(found, indent=2) if arguments.json else headroom_tables(found))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
