"""Subcommands of ``rewritegym experience``: counts of the store of experience, exports of it, and merging."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from graph_rewrite.errors import UserError
from graph_rewrite.experience.exchange import export, merge
from graph_rewrite.experience.statistics import Statistics, statistics_of
from graph_rewrite.experience.store import EXPERIENCE, ExperienceStore, default_store_path

SHOWN = 12
"""Rows of a table that are shown; --json has all."""


@dataclass(frozen=True, slots=True)
class StatsArguments:
    """Count the labels of a store of experience or of an export."""

    file: tyro.conf.Positional[Path | None] = None
    """The store or export; by default the store that searches append to."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True, slots=True)
class ExportArguments:
    """Write a store of experience as one compressed file. Equal stores give equal bytes."""

    target: tyro.conf.Positional[Path]
    """The file to write, such as experience.jsonl.xz."""
    store: Path | None = None
    """The store; by default the one that searches append to."""
    overwrite: bool = False
    """Replace the file if there is one."""
    json: bool = False
    """Print one JSON object."""


@dataclass(frozen=True, slots=True)
class MergeArguments:
    """Add other stores and exports to a store. Merging the same again changes nothing."""

    sources: tyro.conf.Positional[tuple[Path, ...]]
    """Stores and exports."""
    store: Path | None = None
    """The store to add to; by default the one that searches append to."""
    json: bool = False
    """Print one JSON object."""


Subcommand = (
    Annotated[StatsArguments, tyro.conf.subcommand("stats")]
    | Annotated[ExportArguments, tyro.conf.subcommand("export")]
    | Annotated[MergeArguments, tyro.conf.subcommand("merge")]
)


def store_of(given: Path | None) -> Path:
    """Return a file of labels; by default the store that searches append to.

    Raises:
        UserError: searches append to none.
    """
    path = given or default_store_path()
    if path is None:
        raise UserError(f"{EXPERIENCE} is off: name the file")
    return path


def _stats(arguments: StatsArguments) -> int:
    path = store_of(arguments.file)
    if arguments.file is None and not path.exists():
        raise UserError(f"{path}: there is no store of experience yet; a search of the agent regional begins one")
    found = statistics_of(path)
    if arguments.json:
        print(json.dumps(found.to_json()))
    else:
        _show(found)
    return 0


def _export(arguments: ExportArguments) -> int:
    target = arguments.target
    if target.exists() and not arguments.overwrite:
        raise UserError(f"{target} exists: name another file, or replace it with --overwrite")
    rows = export(store_of(arguments.store), target)
    size = target.stat().st_size
    if arguments.json:
        print(json.dumps({"file": str(target), "bytes": size, "labels": len(rows.labels), "left_out": rows.left_out}))
    else:
        print(f"{target}: {len(rows.labels)} labels in {size / 1e6:.2f} MB")
        _tell_left_out(rows.left_out)
    return 0


def _merge(arguments: MergeArguments) -> int:
    if not arguments.sources:
        raise UserError("name the stores or exports to merge")
    store = ExperienceStore(store_of(arguments.store))
    try:
        merged = merge(arguments.sources, store)
    finally:
        store.close()
    if arguments.json:
        print(json.dumps({"file": str(store.path), "new_labels": merged.new_labels, "left_out": merged.left_out}))
    else:
        print(f"{store.path}: {merged.new_labels} new labels")
        _tell_left_out(merged.left_out)
    return 0


def _show(found: Statistics) -> None:
    console = Console()
    console.print(
        f"{found.path} ({found.bytes / 1e6:.1f} MB): {found.labels} labels of {found.windows} windows in {found.models}"
        f" models, timed in {found.cost_s / 60:.0f} minutes; {found.surely_faster} surely faster, {found.surely_slower}"
        f" surely slower, {found.failed} failed; half of the 95% interval is {100 * found.half_of_model:.2f}% of the "
        "model's time in the median",
        highlight=False, soft_wrap=True,
    )  # fmt: skip
    _tell_left_out(found.left_out)
    tables = {
        "family": found.families, "last rule": found.rules, "rewrites in the chain": found.depths,
        "machine": found.machines, "effort": found.efforts,
    }  # fmt: skip
    for title, counts in tables.items():
        console.print(_table(title, counts))


def _table(title: str, counts: Mapping[str, int]) -> Table:
    table = Table(title, "labels")
    table.columns[1].justify = "right"
    for name, number in list(counts.items())[:SHOWN]:
        table.add_row(name, str(number))
    if len(counts) > SHOWN:
        table.add_row(f"{len(counts) - SHOWN} more", str(sum(list(counts.values())[SHOWN:])))
    return table


def _tell_left_out(rows: int) -> None:
    if rows:
        print(f"{rows} rows are damaged or incomplete and were left out", file=sys.stderr)


HANDLERS: dict[type, Callable[[Any], int]] = {StatsArguments: _stats, ExportArguments: _export, MergeArguments: _merge}
"""The function that carries out each subcommand."""
