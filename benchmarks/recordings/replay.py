"""Replay the recorded results: `python -m benchmarks.recordings.replay [FILES]`.

Every result in the tables of benchmarks/results is applied to its model anew, without measuring. The printed table
says which replay, and where the others differ: an exit status of 1 means that a result is lost that is not listed in
`LOST`. Results without a recording (those of agents that extract a graph from an e-graph) and those that failed are
passed over. Seeds that found the same are replayed once.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from agents.commands.common import stderr_console
from agents.core.config import load_config, model_uri
from benchmarks import RESULTS
from benchmarks.protocol.table import table_files
from graph_rewrite.errors import UserError
from graph_rewrite.replay import Recording, replay
from graph_rewrite.rules import rule_set
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.models import open_model

LOST: frozenset[tuple[str, str]] = frozenset()
"""(file, model) of results that were recorded by keys alone and are not found any more."""
WIDTH = 200
"""Columns of the table where it goes into a file."""


@dataclass(frozen=True)
class Arguments:
    """Replay recorded results."""

    files: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Tables of benchmarks.results, or result.json of runs; by default the tables in benchmarks/results."""
    models: tuple[str, ...] = ()
    """Models; all by default."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


@dataclass(frozen=True, slots=True)
class ReplayedResult:
    """A recorded result, replayed."""

    file: str
    model: str
    agent: str
    speedup: float
    """As it was recorded."""
    steps: int
    applied: int
    complete: bool
    difference: str
    """The first difference, in words; empty where there is none."""
    seconds: float

    @property
    def is_lost(self) -> bool:
        """True where it does not replay and is not listed as lost."""
        return not self.complete and (self.file, self.model) not in LOST


def results_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield model and result of each result with rewrites in a file.

    Raises:
        UserError: a file that holds no results.
    """
    try:
        found = [(row["model"], row) for row in _rows(json.loads(path.read_text())) if row["rewrites"]]
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} holds no results of a benchmark ({error})") from error
    yield from found


def _rows(stored: Any) -> list[dict[str, Any]]:
    """Return the rows of a file of `evaluate.py`, `train.py` or `benchmarks.results`; of the last those that count
    and have a recording, with the batch in the model's URI."""
    if "protocol" not in stored:
        return [{"model": stored["model"], **result} for result in stored["results"]]
    counting = [row for row in stored["rows"] if row["verified"] and not row.get("failure") and row.get("actions")]
    return [{**row, "model": _at_batch(row["model"], row.get("batch", 1))} for row in counting]


def _at_batch(model: str, batch: int) -> str:
    return model if batch == 1 else model_uri(model, {"batch": batch})


def replayed(file: str, model: str, result: dict[str, Any]) -> ReplayedResult | None:
    """Replay one result; None where it has no recording."""
    recording = Recording.from_json(result)
    if any(step.rule == "Extraction" for step in recording.steps):
        return None
    began = time.monotonic()
    config = load_config(model)
    uri = model_uri(model, dict(config.model))
    rewriter = Rewriter(rule_set(recording.rules), config.env.granularity)
    found = replay(recording, open_model(uri).graph, rewriter)
    difference = "" if found.first_difference is None else str(found.first_difference)
    return ReplayedResult(
        file, model, result["agent"], result["speedup"], len(recording.steps), found.steps, found.complete,
        difference, round(time.monotonic() - began, 2),
    )  # fmt: skip


def run(arguments: Arguments, console: Console) -> list[ReplayedResult]:
    """Replay all results, with a line for each."""
    found: list[ReplayedResult] = []
    for path in arguments.files or table_files(RESULTS):
        known: set[str] = set()
        for model, result in results_of(path):
            same = json.dumps([model, result.get("actions") or result["rewrites"]])
            if same in known or (arguments.models and model not in arguments.models):
                continue
            known.add(same)
            one = replayed(path.name, model, result)
            if one is not None:
                found.append(one)
                console.print(f"{one.file}: {model}: {one.applied} of {one.steps} rewrites", highlight=False)
    return found


def table(found: list[ReplayedResult]) -> Table:
    """Return a table with a row per result."""
    made = Table(title=f"{sum(one.complete for one in found)} of {len(found)} recorded results replay")
    for heading in ("file", "model", "agent", "speed-up", "rewrites", "seconds", "first difference"):
        made.add_column(heading, justify="right" if heading in ("speed-up", "rewrites", "seconds") else "left")
    for one in found:
        rewrites = f"{one.applied} of {one.steps}"
        made.add_row(
            one.file, one.model, one.agent, f"{one.speedup:.3f}", rewrites, f"{one.seconds:.1f}", one.difference
        )
    return made


def main() -> int:
    """Run the benchmark and return the exit code."""
    arguments = tyro.cli(Arguments, prog="python -m benchmarks.recordings.replay")

    def command() -> int:
        found = run(arguments, stderr_console())
        if arguments.json:
            print(json.dumps([asdict(one) for one in found], indent=2))
        else:
            Console(width=None if sys.stdout.isatty() else WIDTH).print(table(found))
        return int(any(one.is_lost for one in found))

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
