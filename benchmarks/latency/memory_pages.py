"""Measure what huge pages (2 MiB) gain: `python -m benchmarks.latency.memory_pages --out FILE`.

It takes recorded results of a table, applies their rewrites anew, and judges original and result by the table's
protocol, each in processes with small pages (4 KiB) and in processes with huge ones. It needs a system whose mode of
transparent huge pages is `madvise` (`rewritegym doctor` tells it). It writes FILE (JSON) and a table beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import tyro

from agents.commands.common import stderr_console
from agents.reporting.runs import write_json
from benchmarks import RESULTS
from benchmarks.figures.tables import markdown
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import ORIGINAL, Contestant
from benchmarks.protocol.harness import Say
from benchmarks.protocol.judging.intervals import Interval, over_sessions
from benchmarks.protocol.judging.judge import Protocol
from benchmarks.protocol.judging.judgement import judged
from benchmarks.protocol.machine.description import machine, machine_name, versions
from benchmarks.protocol.plan import TablePlan
from benchmarks.protocol.searches.runs import located
from benchmarks.protocol.tools import tools_of
from benchmarks.recordings.made_again import made_again
from graph_rewrite.errors import MachineError, UserError
from graph_rewrite.latency.device import cpu_model
from graph_rewrite.system import huge_pages
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.commands import run_command

MODELS = ("nasrnn", "resnet18", "vgg19", "bert", "inception-v3", "bert-tiny")
SMALL = {huge_pages.TUNABLES: "glibc.malloc.hugetlb=0"}
PATIENCE_S = 240.0
"""Seconds to wait for a quiet machine, at most."""
HEADINGS = ("model", "original", "original, huge pages", "result", "result, huge pages", "result, all in huge pages")


@dataclass(frozen=True)
class Arguments:
    """Judge originals and results in small pages and in huge ones."""

    models: Annotated[tuple[str, ...], tyro.conf.Positional] = MODELS
    """Models of the zoo with a result in the table."""
    table: Path = RESULTS / machine_name() / "cpu-t1.json"
    """The table whose recorded rewrites are applied."""
    agent: str = "regional"
    """The agent whose first result at 60 s is taken."""
    sessions: int = 6
    out: Path = RESULTS / "latency" / "memory-pages.json"
    runs: Path = Path("runs/memory-pages")
    """Folder of the models and of the sessions that are done, with which a stopped command goes on."""


@dataclass(frozen=True)
class PagesRow:
    """Speed-ups of a model with their 95% intervals; all but the last are over the original in small pages."""

    model: str
    baseline_ms: float
    """Of the original in small pages."""
    original_huge: tuple[float, float, float]
    result_small: tuple[float, float, float]
    result_huge: tuple[float, float, float]
    both_huge: tuple[float, float, float]
    """Of the result over the original, both in huge pages."""

    def cells(self) -> list[str]:
        """Return the row of the table."""
        speedups = (self.original_huge, self.result_small, self.result_huge, self.both_huge)
        shown = [f"{speedup:.2f} ({low:.2f} to {high:.2f})" for speedup, low, high in speedups]
        return [self.model, f"{self.baseline_ms:.3g} ms", *shown]


def measured(arguments: Arguments, model: str, say: Say) -> PagesRow:
    """Judge a model's original and result with either pages.

    Raises:
        UserError: the model has no result that can be applied.
        MachineError: one of them cannot be run.
    """
    protocol = replace(Protocol(), sessions=arguments.sessions)
    tools = tools_of(TablePlan((model,), at_once=2, protocol=protocol), say, PATIENCE_S)
    original, path = located(model, 1), arguments.runs.resolve() / model / "result.onnx"
    result = made_again(arguments.table, arguments.agent, model, path)
    found = judged(
        result.parent, _contestant(ORIGINAL, original, SMALL), [
            _contestant("original in huge pages", original, {}), _contestant("result", result, SMALL),
            _contestant("result in huge pages", result, {}),
        ], protocol, tools.judging(model, result.parent), setting=tools.setting, wait=tools.wait, what=model,
        at_once=tools.at_once, quiet=tools.quiet,
    )  # fmt: skip
    rulings = list(found.verdicts.values())
    if failures := [one.failure for one in rulings if one.failure]:
        raise MachineError(f"{model}: {failures[0]}")
    before, _, after = rulings
    both = over_sessions(list(np.subtract(after.sessions, before.sessions)))
    speedups = [_plain(one.wall) for one in rulings if one.wall is not None]
    assert before.baseline_ms is not None, "what has no failure was timed"
    return PagesRow(model, before.baseline_ms, speedups[0], speedups[1], speedups[2], _plain(both))


def _contestant(name: str, path: Path, environment: Mapping[str, str]) -> Contestant:
    return Contestant(name, ort_runner.MODULE, path, {"plain": True} if name.startswith(ORIGINAL) else {}, environment)


def _plain(interval: Interval) -> tuple[float, float, float]:
    return interval.speedup, interval.low, interval.high


def table(rows: Sequence[PagesRow]) -> str:
    """Return the rows as Markdown."""
    return markdown([HEADINGS, *(row.cells() for row in rows)]).removesuffix("\n")


def run(arguments: Arguments, say: Say) -> Iterator[PagesRow]:
    """Yield a row per model, and write the rows so far after each.

    Raises:
        UserError: huge pages are not to be had on request here, or as `measured`.
        MachineError: as `measured`.
    """
    if not huge_pages.are_asked_for():
        raise UserError(
            f"transparent huge pages: the mode is {huge_pages.mode()}, so programs cannot choose; it must be madvise"
            f" (/sys/kernel/mm/transparent_hugepage/enabled), and {huge_pages.TUNABLES} must not forbid them"
        )
    rows = []
    for model in arguments.models:
        rows.append(measured(arguments, model, say))
        source = {"table": arguments.table.name, "agent": arguments.agent}
        entries = [asdict(row) for row in rows]
        write_json(arguments.out, {"machine": machine(), "versions": versions(), **source, "rows": entries})
        replace_file(arguments.out.with_suffix(".md"), f"{table(rows)}\n\n{cpu_model()}.\n")
        yield rows[-1]


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, and print the table."""
    arguments = tyro.cli(Arguments, args=argv)
    console = stderr_console()
    rows = list(run(arguments, console.print))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(run_command(main))
