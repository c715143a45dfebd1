"""Measure what the distance of two cores does to results on two threads: `python -m benchmarks.latency.distant_cores`.

It makes recorded results of a table anew and runs each in turn with its original, with two threads, while it looks at
how long the cores take to hand a number over. On a virtual machine whose cores share a cache at times, it tells the
rounds with near cores from those with distant ones. It writes FILE (JSON) and a table beside it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import tyro

from agents.commands.common import stderr_console
from agents.reporting.runs import write_json
from benchmarks import RESULTS
from benchmarks.figures.tables import markdown
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import ORIGINAL, Contestant
from benchmarks.protocol.judging.inputs import make_inputs
from benchmarks.protocol.machine.core_distance import probe_between
from benchmarks.protocol.machine.description import machine, machine_name, versions
from benchmarks.protocol.machine.processes import cores_for
from benchmarks.protocol.searches.runs import located, uri_of
from benchmarks.recordings.made_again import made_again
from graph_rewrite.errors import UserError
from graph_rewrite.latency.device import cpu_model
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command
from graph_rewrite.task.models import open_model

MODELS = ("resnet18", "csrnet", "resnet50")
TURN_S = 0.2
"""Seconds that a model runs before it is the other's turn, at least one run."""
APART = 1.3
"""Times the shortest look of all that looks at distant cores take, at least."""
HEADINGS = ("model", "cores", "rounds", "hand-over", "original", "result", "speed-up")

Run = Callable[[], float]
"""Runs a model once, and returns the seconds."""
Look = Callable[[], float]


@dataclass(frozen=True)
class Arguments:
    """Time originals and results on two threads, with near cores and with distant ones."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = MODELS
    """Models of the zoo with a result in the table."""
    table: Path = RESULTS / machine_name() / "cpu-t2.json"
    """The table whose recorded rewrites are applied."""
    agent: str = "regional"
    """The agent whose first result at 60 s is taken."""
    seconds: float = 60.0
    """Seconds for each model."""
    out: Path = RESULTS / "latency" / "distant-cores.json"
    runs: Path = Path("runs/distant-cores")
    """Folder of the models."""


@dataclass(frozen=True)
class Round:
    """A turn of either model, and the longer of the looks before and behind it."""

    hop_s: float
    original_s: float
    result_s: float


@dataclass(frozen=True)
class DistanceRow:
    """Medians over some rounds of a model."""

    model: str
    cores: str
    """Whether the cores were `near` or `distant`."""
    rounds: int
    hop_ns: float
    """Nanoseconds of a hand-over, with some 100 of the interpreter."""
    original_ms: float
    result_ms: float
    speedup: float

    def cells(self) -> list[str]:
        """Return the row of the table."""
        return [
            self.model, self.cores, str(self.rounds), f"{self.hop_ns:.0f} ns", f"{self.original_ms:.3g} ms",
            f"{self.result_ms:.3g} ms", f"{self.speedup:.2f}",
        ]  # fmt: skip


def rounds_of(original: Run, result: Run, look: Look, seconds: float, clock: Callable[[], float]) -> Iterator[Round]:
    """Yield rounds for some seconds: a turn of the original, one of the result, and a look before and behind them. A
    round in which the cores came nearer or moved away is left out."""
    end, before = clock() + seconds, look()
    while clock() < end:
        times = [_turn(one, clock) for one in (original, result)]
        behind = look()
        if max(before, behind) < APART * min(before, behind):
            yield Round(max(before, behind), *times)
        before = behind


def _turn(run: Run, clock: Callable[[], float]) -> float:
    """Return the middle of the times of a turn, after one run that is not timed."""
    run()
    began, times = clock(), [run()]
    while clock() - began < TURN_S:
        times.append(run())
    return median(times)


def rows_of(model: str, rounds: Sequence[Round]) -> list[DistanceRow]:
    """Return the rows of a model: one where all looks are alike."""
    nearest = min(one.hop_s for one in rounds)
    near = [one for one in rounds if one.hop_s < APART * nearest]
    distant = [one for one in rounds if one.hop_s >= APART * nearest]
    return [_row(model, cores, found) for cores, found in (("near", near), ("distant", distant)) if found]


def _row(model: str, cores: str, rounds: Sequence[Round]) -> DistanceRow:
    return DistanceRow(
        model, cores, len(rounds), 1e9 * median(one.hop_s for one in rounds),
        1e3 * median(one.original_s for one in rounds), 1e3 * median(one.result_s for one in rounds),
        median(one.original_s / one.result_s for one in rounds),
    )  # fmt: skip


def measured(arguments: Arguments, model: str, look: Look) -> list[DistanceRow]:
    """Return the rows of a model.

    Raises:
        UserError: it has no result that can be applied.
    """
    path = made_again(arguments.table, arguments.agent, model, arguments.runs.resolve() / f"{model}.onnx", threads=2)
    feeds = make_inputs(open_model(uri_of(model, 1)), 8)
    original, result = (
        _timed(ort_runner.open_runner(Contestant(name, ort_runner.MODULE, file), 2), feeds)
        for name, file in ((ORIGINAL, located(model, 1)), ("result", path))
    )
    found = list(rounds_of(original, result, look, arguments.seconds, time.perf_counter))
    if not found:
        raise UserError(f"{model}: no round of {arguments.seconds:g} s passed without a move of the cores: take more")
    return rows_of(model, found)


def _timed(runner: ort_runner.OrtRunner, feeds: Sequence[Mapping[str, Any]]) -> Run:
    """Return what runs a model once, on one input after another."""
    inputs = cycle(feeds)

    def run() -> float:
        began = time.perf_counter()
        runner.run(next(inputs))
        return time.perf_counter() - began

    return run


def table(rows: Sequence[DistanceRow]) -> str:
    """Return the rows as Markdown."""
    return markdown([HEADINGS, *(row.cells() for row in rows)]).removesuffix("\n")


def run(arguments: Arguments) -> list[DistanceRow]:
    """Measure all models, and write the rows.

    Raises:
        UserError: there is one core, or as `measured`.
    """
    cores = cores_for(2)
    if len(cores) < 2:
        raise UserError("this process may use one core only: the distance of two cannot be measured")
    rows: list[DistanceRow] = []
    with probe_between(cores) as probe:
        for model in arguments.models:
            rows += measured(arguments, model, probe.look)
    source = {"table": arguments.table.name, "agent": arguments.agent, "seconds": arguments.seconds}
    entries = [asdict(row) for row in rows]
    write_json(arguments.out, {"machine": machine(), "versions": versions(), **source, "rows": entries})
    replace_file(arguments.out.with_suffix(".md"), f"{table(rows)}\n\n{cpu_model()}, two threads.\n")
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    arguments = tyro.cli(Arguments, args=argv)
    stderr_console().print(f"{arguments.seconds:g} s for each of {', '.join(arguments.models)}")
    print(table(run(arguments)))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
