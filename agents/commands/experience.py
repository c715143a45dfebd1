"""``rewritegym experience``: what searches have learnt of windows and rewrites, and learning from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from agents.effects.own_means import labels_by_kind, machine_of, own_steps_path, save_own
from graph_rewrite.experience.cli import HANDLERS, Subcommand, store_of
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True, slots=True)
class LearnArguments:
    """Learn anew what rewrites save on this machine, from a store of experience. Searches on this machine learn by
    themselves: this is for stores of other machines, and after an update."""

    file: tyro.conf.Positional[Path | None] = None
    """A store or an export; by default the store that searches append to. Only labels of this kind of processor
    count."""
    json: bool = False
    """Print one JSON object."""


Command = Subcommand | Annotated[LearnArguments, tyro.conf.subcommand("learn")]


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    command: Any = parse(Command, argv, "rewritegym experience")
    handler = learn if isinstance(command, LearnArguments) else HANDLERS[type(command)]
    return run_command(lambda: handler(command))


def learn(arguments: LearnArguments) -> int:
    """Write the steps that labels tell of where searches look for them, in place of those that searches have left; of
    each runtime and number of threads apart.

    Raises:
        UserError: there is no such store, or it has no label of this kind of processor that can be used.
    """
    # Here, since the help needs neither tables nor Gymnasium.
    from agents.effects.learning_means import MeansLearner
    from agents.effects.tabulating import tabulated

    target, by_kind = own_steps_path(), labels_by_kind(store_of(arguments.file))
    tables = {kind: tabulated(labels, progress=_told).table for kind, labels in by_kind.items()}
    found = {kind: MeansLearner(table).timed_steps(machine_of(kind)) for kind, table in tables.items()}
    for kind, timed in found.items():
        save_own(timed, kind, anew=True)
    steps, windows = sum(map(len, found.values())), sum(len(table.windows) for table in tables.values())
    if arguments.json:
        count = sum(map(len, by_kind.values()))
        print(json.dumps({"file": str(target), "labels": count, "rewrites": steps, "windows": windows}))
    else:
        print(f"learnt what {steps} rewrites in {windows} windows save: {target}")
        print("searches by windows on this machine use it; remove the file to forget it")
    return 0


def _told(done: int, of: int) -> None:
    """Show progress where someone looks."""
    if sys.stderr.isatty():
        print(f"\r{done} of {of} windows", end="\n" if done == of else "", file=sys.stderr, flush=True)
