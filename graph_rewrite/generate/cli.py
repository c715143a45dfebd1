"""``rewritegym rules generate``: make a set of substitutions, as TASO's generator does."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from graph_rewrite.errors import UserError
from graph_rewrite.generate.families import families
from graph_rewrite.generate.pipeline import generate, to_text
from graph_rewrite.generate.work import GenerationSettings
from graph_rewrite.system.atomic_files import replace_file
from graph_rewrite.system.cpu_count import available_cores
from graph_rewrite.terms.substitution import SIGNATURES

ALL = "all"


@dataclass(frozen=True)
class Generate:
    """Enumerate graphs, pair those that compute the same, verify and prune: a file of substitutions."""

    out: Annotated[Path, tyro.conf.arg(name="out")] = Path("rules.json")
    """The file that the substitutions are written to, as JSON."""
    ops: str = ALL
    """Operators, separated by commas; `all` for every one."""
    max_ops: int = 3
    """Operators of a graph, at most; constants are counted."""
    seed: int = 0
    """Draws values, uninterpreted functions and shapes."""
    processes: int = 0
    """That work side by side; 0 takes one per core of this process. The file does not depend on it."""
    state: Path | None = None
    """Folder for finished work, from which an interrupted run goes on; OUT.state by default, removed at the end."""


def generate_rules(command: Generate) -> int:
    """Carry out the command and print the table of what each step left. Returns 0.

    Raises:
        ValueError: an unknown operator, or a number out of range.
        OSError: the file or the state cannot be written.
    """
    if not 1 <= command.max_ops <= 4:
        raise UserError(f"--max-ops {command.max_ops}: from 1 to 4")
    if command.processes < 0:
        raise UserError(f"--processes {command.processes}: at least 1, or 0 for one per core")
    ops = tuple(SIGNATURES) if command.ops == ALL else tuple(command.ops.split(","))
    families(ops)
    plan = GenerationSettings(tuple(op for op in SIGNATURES if op in ops), command.max_ops, command.seed)
    command.out.parent.mkdir(parents=True, exist_ok=True)
    state = command.state or command.out.with_name(command.out.name + ".state")
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bars:
        shown: dict[str, TaskID] = {}

        def progress(step: str, done: int, of: int) -> None:
            if step not in shown:
                shown[step] = bars.add_task(step, total=of)
            bars.update(shown[step], completed=done, total=of)

        processes = command.processes or available_cores()
        result = generate(plan, state, processes=processes, progress=progress)
    replace_file(command.out, to_text(result))
    if command.state is None:
        shutil.rmtree(state)
    table = Table("step", "left", box=box.SIMPLE, pad_edge=False)
    for step, left in result["table"].items():
        table.add_row(step, f"{left:,}")
    Console().print(table)
    return 0
