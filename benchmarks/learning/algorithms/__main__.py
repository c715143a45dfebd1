"""Train learning algorithms in the windows of a table, and score them on families of networks that they did not see.

    python -m benchmarks.learning.algorithms --algorithms ppo cloning --seeds 2 --steps 5000 --out build/quick.json

prints a table of scores, and writes the results file, a page and the learning curves beside it. A row is written as
soon as its training has ended, and the same command goes on from there. docs/rl/windows.md explains the scores.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markdown import Markdown

from agents.commands.common import stderr_console
from agents.tabular.algorithms import ALGORITHMS, TabularBenchmark, algorithm_of
from agents.tabular.run import LearningRun, LearningSettings
from agents.tabular.splits import HELD_OUT, FamilySplit, fixed_split, rotated_splits
from benchmarks.learning.algorithms.curves import save_curves
from benchmarks.learning.algorithms.report import page, summary, tables
from benchmarks.learning.algorithms.rows import LearningResults, RowKey, ScoredWindows, TrainingRow, rounded
from benchmarks.learning.algorithms.scores import normalised
from benchmarks.protocol.machine.description import commit, machine, versions
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command

RESULTS = Path(__file__).parents[2] / "results" / "learning" / "algorithms"


@dataclass(frozen=True)
class Arguments(LearningSettings):
    """Train and score learning algorithms on a table of windows."""

    algorithms: tuple[str, ...] = ()
    """Algorithms by name, or MODULE:FUNCTION for one of yours; all by default."""
    seeds: int = 5
    """Trainings of each algorithm on each split, with seeds 0, 1, ..."""
    held_out: tuple[str, ...] = HELD_OUT
    """Families of networks that are left out of training, and scored."""
    folds: int = 0
    """Divide all families into so many parts instead, and leave out each in turn; 0 for the fixed split."""
    table: Path = SHIPPED
    """The table of windows."""
    out: Path | None = None
    """The results file; by default fixed.json or folds-N.json in benchmarks/results/learning/algorithms."""
    no_figures: bool = False
    """Write neither page nor plot."""
    json: bool = False
    """Print one JSON object and nothing else on standard output."""

    @property
    def path(self) -> Path:
        """The results file."""
        return self.out or RESULTS / (f"folds-{self.folds}.json" if self.folds else "fixed.json")

    @property
    def settings(self) -> LearningSettings:
        """The settings that all trainings share."""
        return LearningSettings(**{field.name: getattr(self, field.name) for field in fields(LearningSettings)})

    def splits(self, table: WindowTable) -> list[FamilySplit]:
        """Return the splits.

        Raises:
            UserError: an unknown family, or a number of folds that there cannot be.
        """
        return rotated_splits(table, self.folds) if self.folds else [fixed_split(table, self.held_out)]


def run(arguments: Arguments, console: Console) -> LearningResults:
    """Train what the results file does not have yet, and write it after each training.

    Raises:
        UserError: no such algorithm, family or table, a number out of range, or a results file of other settings.
        OSError: the results file cannot be written.
    """
    if arguments.seeds < 1:
        raise UserError(f"--seeds must be at least 1, got {arguments.seeds}")
    names = arguments.algorithms or tuple(ALGORITHMS)
    algorithms = {name: algorithm_of(name) for name in names}
    table = WindowTable.load(arguments.table)
    splits = {split.name: split for split in arguments.splits(table)}
    benchmark = TabularBenchmark(table, arguments.settings)
    results = _opened(arguments, benchmark, list(splits.values()))
    todo = [(name, split, seed) for seed in range(arguments.seeds) for split in splits for name in algorithms]
    todo = [key for key in todo if key not in results.done]
    for number, key in enumerate(todo):
        name, split, seed = key
        made = benchmark.run(algorithms[name], splits[split], seed)
        row = _row(key, made)
        results.rows.append(row)
        results.write(arguments.path)
        left = _left(results, todo[number + 1 :])
        text = f"{number + 1} of {len(todo)}: {_told(row)}; about {left:.0f} min left"
        console.print(text, highlight=False, soft_wrap=True)
    return results


def _opened(arguments: Arguments, benchmark: TabularBenchmark, splits: Sequence[FamilySplit]) -> LearningResults:
    """Return the results file with what it has, or an empty one."""
    table, optimum = benchmark.table, benchmark.game.optimum
    head: dict[str, Any] = {
        "settings": asdict(arguments.settings),
        "table": {"digest": digest(table), "windows": len(table.windows), "steps": table.steps},
        "machine": machine(), "versions": versions(),
    }  # fmt: skip
    scored = tuple(
        ScoredWindows(
            split.name, split.held_out, tuple(table.windows[number].family for number in split.held_out),
            rounded(optimum[list(split.held_out)]),
        )
        for split in splits
    )  # fmt: skip
    if not arguments.path.exists():
        return LearningResults(head, scored)
    known = LearningResults.read(arguments.path)
    known.check(head, scored, arguments.path)
    return known


def _row(key: RowKey, made: LearningRun) -> TrainingRow:
    act = made.actor or made.policy.likeliest
    train = normalised(made.game.play(act, made.train), made.game.optimum[made.train])
    curve = [(point.steps, round(point.seconds, 2), rounded(point.returns)) for point in made.curve]
    return TrainingRow(
        *key, made.taken, round(made.seconds, 2), round(float(train.mean()), 4) if len(train) else 0.0,
        rounded(made.returns()), tuple(curve), commit(),
    )  # fmt: skip


def _left(results: LearningResults, todo: Sequence[RowKey]) -> float:
    """Return the minutes that the other trainings will take, by those of the same algorithms, or of all."""
    mean = float(np.mean([row.seconds for row in results.rows]))
    known = {name: float(np.mean([row.seconds for row in results.of(name)])) for name in results.algorithms}
    return sum(known.get(name, mean) for name, _, _ in todo) / 60.0


def _told(row: TrainingRow) -> str:
    return f"{row.algorithm}, {row.split}, seed {row.seed}: saves {np.mean(row.returns):.4f} after {row.seconds:.0f} s"


def digest(table: WindowTable) -> str:
    """Return a text that is equal for equal tables."""
    found = hashlib.sha256(json.dumps(table.header(), sort_keys=True).encode())
    for name, values in sorted(table.arrays.items()):
        found.update(name.encode() + np.ascontiguousarray(values).tobytes())
    return found.hexdigest()[:16]


def write_figures(results: LearningResults, path: Path) -> None:
    """Write page, tables and plot beside a results file.

    Raises:
        OSError: they cannot be written.
    """
    plot = path.with_suffix(".png")
    save_curves(results, plot)
    replace_file(path.with_suffix(".md"), page(results, plot.name))
    replace_file(path.with_name(f"{path.stem}-summary.md"), tables(results))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code."""
    arguments: Arguments = parse(Arguments, argv, "python -m benchmarks.learning.algorithms")

    def command() -> int:
        results = run(arguments, stderr_console())
        if not arguments.no_figures:
            write_figures(results, arguments.path)
        if arguments.json:
            print(json.dumps(summary(results), indent=1))
        else:
            Console(width=None if sys.stdout.isatty() else 160).print(Markdown(tables(results)))
        return 0

    return run_command(command)


if __name__ == "__main__":
    sys.exit(main())
