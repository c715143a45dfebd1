"""Write the means of what steps save, by which `regional` orders what it tries.

    python -m benchmarks.learning.step_means
    python -m benchmarks.learning.step_means --tables mine.npz --out mine.json

What steps save on a kind of processor beyond the means of all is learnt from the tables that name theirs. The same
tables give the same file. `python -m benchmarks.learning.search_order` tells what they are worth on
architectures that they were not learnt from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.effects.learning_means import MeansLearner, Part, means_by_kind, means_of
from agents.effects.step_means import SHIPPED as MEANS
from agents.effects.step_means import save_means
from benchmarks import RESULTS
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.system.commands import run_command

FURTHER = tuple(RESULTS / "learning" / f"windows-{name}.npz" for name in ("amd-epyc-25-17", "intel-xeon-6-207"))
"""Tables of other processors than that of the shipped table."""


@dataclass(frozen=True)
class Arguments:
    """Write the means of what steps save."""

    tables: tuple[Path, ...] = (SHIPPED, *FURTHER)
    """Tables of windows."""
    out: Path = MEANS
    """The file of the means."""


def _run(arguments: Arguments) -> int:
    parts: list[Part] = [(MeansLearner(WindowTable.load(path)), None) for path in arguments.tables]
    means = means_of(parts)
    by_kind = means_by_kind(parts, means)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save_means(arguments.out, means, by_kind)
    steps = {kind: sum(len(learner.timed(None, kind)) for learner, _ in parts) for kind in by_kind}
    print(json.dumps({"means": str(arguments.out), "bytes": arguments.out.stat().st_size, "steps": steps}))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.step_means")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
