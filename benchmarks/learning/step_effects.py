"""Train the model of effects by which `regional` orders what it tries, and write it.

    python -m benchmarks.learning.step_effects
    python -m benchmarks.learning.step_effects --tables mine.npz --out build/effects

It learns from the windows of all processors. The same tables give the same model on one machine.
`python -m benchmarks.learning.window_policy --folds 4` tells what it is worth on architectures that it was not trained
on.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.commands.common import stderr_console
from agents.effects.prior import SHIPPED as MODEL
from agents.effects.samples import samples_of
from agents.effects.training import EffectTraining, train
from benchmarks.protocol.searches.held_out import FURTHER
from envs.window.joining import joined
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Train the model of effects that ships."""

    tables: tuple[Path, ...] = (SHIPPED, *FURTHER)
    """Tables of windows that were timed in ONNX Runtime on CPUs."""
    out: Path = MODEL
    """Folder of the model."""
    members: int = 3
    """Networks that are trained from different seeds, and predict together."""
    seed: int = 0


def _run(arguments: Arguments) -> int:
    console, table = stderr_console(), joined([WindowTable.load(path) for path in arguments.tables])
    settings = EffectTraining(members=arguments.members, seed=arguments.seed)
    total = settings.members * settings.epochs

    def told(done: int, loss: float) -> None:
        console.print(f"epoch {done}/{total}, loss {loss:.3f}", highlight=False)

    train(list(samples_of(table)), settings, told).save(arguments.out)
    print(json.dumps({"model": str(arguments.out), "windows": len(table.windows), "steps": table.steps}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.step_effects")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
