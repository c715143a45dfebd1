"""``rewritegym experience``: what searches have learnt of windows and rewrites, and learning from it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from agents.effects.own_means import labels_here, own_means_path, save_own
from agents.effects.step_means import SHIPPED, load_means
from graph_rewrite.experience.cli import HANDLERS, Subcommand, store_of
from graph_rewrite.latency.device import processor_kind
from graph_rewrite.rewriting.faults import RuleFaults
from graph_rewrite.rules.rewriter import Rewriter
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True, slots=True)
class LearnArguments:
    """Learn from the searches on this machine what rewrites save on it. Later searches by windows, of any model, begin
    with that."""

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
    """Learn the machine's own means, and write them where searches look for them.

    Raises:
        UserError: there is no such store, or it has no label of this kind of processor that can be used.
    """
    # Here, since they need Gymnasium, which the other subcommands do not.
    from agents.effects.learning_means import MeansLearner, means_beyond
    from envs.window.tabulation import tabulate

    kind, target = processor_kind(), own_means_path()
    labels = labels_here(store_of(arguments.file))
    made = tabulate(labels, Rewriter(deployment=False, faults=RuleFaults()), progress=_told)
    learner = MeansLearner(made.table)
    save_own(target, means_beyond([(learner, None)], load_means(SHIPPED, kind), kind), kind)
    steps, windows = len(learner.timed(None, kind)), len(made.table.windows)
    if arguments.json:
        print(json.dumps({"file": str(target), "labels": len(labels), "rewrites": steps, "windows": windows}))
    else:
        print(f"learnt what {steps} rewrites in {windows} windows save: {target}")
        print("searches by windows on this machine use it; remove the file to forget it")
    return 0


def _told(done: int, of: int) -> None:
    """Show progress where someone looks."""
    if sys.stderr.isatty():
        print(f"\r{done} of {of} windows", end="\n" if done == of else "", file=sys.stderr, flush=True)
