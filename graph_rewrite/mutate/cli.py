"""``python -m graph_rewrite mutate MODEL``: the partially equivalent rewrites of a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from graph_rewrite.errors import UserError
from graph_rewrite.mutate.listing import lines, to_json
from graph_rewrite.mutate.search import Limits, mutants_of
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.system.command_line import parse
from graph_rewrite.system.commands import EXIT_INTERRUPTED, run_command
from graph_rewrite.system.durations import parse_seconds


@dataclass(frozen=True)
class Mutate:
    """List the mutants of a model: programs that may stand for a part of it, but differ in some boxes of its output.

    Each comes with its operators, the boxes that are wrong, the repair that makes it equal everywhere, and its cost.
    The model is not changed. Ctrl-C and the time limit end the search, and what was found until then is listed.
    """

    model: tyro.conf.Positional[Path]
    """The ONNX file; its shapes must be fixed."""
    time_limit: str = "180s"
    """Time for the search, such as 90, 120s or 10m."""
    depth: int = 4
    """Operators of a mutant, at most; layouts of its outputs are not counted."""
    keep: float = 0.25
    """The part of each output that a mutant must get right, from 0 to 1."""
    json: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False
    """Print one JSON object and nothing else."""


def main(argv: Sequence[str] | None = None) -> int:
    """Carry out the command; return its exit status, 2 with a line on standard error where arguments or model do not
    fit."""
    command = parse(Mutate, argv, "python -m graph_rewrite mutate", pairs=True)
    return run_command(lambda: _run(command))


def _run(command: Mutate) -> int:
    if not 1 <= command.depth <= 4:
        raise UserError(f"--depth {command.depth}: from 1 to 4")
    if not 0 < command.keep <= 1:
        raise UserError(f"--keep {command.keep}: above 0 and at most 1")
    limits = Limits(parse_seconds(command.time_limit), command.depth, command.keep)
    graph, _ = normalise(load(command.model))
    found = mutants_of(graph, limits)
    if command.json:
        print(json.dumps({"model": str(command.model), **to_json(graph, found)}))
    else:
        print("\n".join(lines(graph, found)))
    return EXIT_INTERRUPTED if found.interrupted else 0
