"""Make a table of windows out of experience, and say what it holds.

    python -m benchmarks.learning.window_table experience.jsonl.xz --out windows.npz

The environment `rewritegym/WindowTable-v0` plays it, and models of effects are trained on it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import tyro

from agents.commands.common import stderr_console
from agents.effects.tabulating import tabulated
from envs.window.table import WindowTable
from envs.window.tabulation import LIMITS, Tabulation
from graph_rewrite.experience.exchange import labels_of
from graph_rewrite.system.commands import run_command


@dataclass(frozen=True)
class Arguments:
    """Make a table of windows out of experience."""

    experience: Annotated[Path, tyro.conf.Positional]
    """A store of experience, or an export of one."""
    out: Path = Path("build/windows.npz")
    """The table."""
    max_nodes: int = 512
    """States with more nodes are left out: observations are padded to the largest."""


def description(table: WindowTable) -> dict[str, Any]:
    """Return numbers of windows, states and steps, and of the windows by family."""
    arrays = table.arrays
    depth = arrays["state_depth"][1:].tolist()
    gains = table.best_shares()[arrays["window_root"]]
    return {
        "windows": len(table.windows), "states": table.states, "steps": table.steps,
        "failed": int(arrays["step_failed"].sum()),
        "with_choice": sum(window.chains > 1 for window in table.windows),
        "exhaustive": sum(window.exhaustive for window in table.windows),
        "gaining": int((gains > 0.0).sum()), "mean_optimum": round(float(gains.mean()), 4),
        "by_depth": dict(sorted((d, n) for d, n in Counter(depth).items() if d)),
        "families": dict(sorted(Counter(window.family for window in table.windows).items())),
        "models": len({window.model for window in table.windows}), "rules": len(table.rules),
        "limits": table.header()["limits"],
    }  # fmt: skip


def make(experience: Path, out: Path, max_nodes: int = LIMITS.max_nodes, progress: bool = True) -> Tabulation:
    """Write the table of some experience.

    Raises:
        UserError: the experience cannot be read, or none of its windows can be made again.
        OSError: the table cannot be written.
    """
    console = stderr_console()

    def told(done: int, of: int) -> None:
        if progress and done % 100 == 0:
            console.print(f"{done} of {of} windows", highlight=False)

    limits = replace(LIMITS, max_nodes=min(max_nodes, LIMITS.max_nodes))
    found = tabulated(labels_of(experience), limits, told)
    out.parent.mkdir(parents=True, exist_ok=True)
    found.table.save(out)
    return found


def _run(arguments: Arguments) -> int:
    found = make(arguments.experience, arguments.out, arguments.max_nodes)
    print(
        json.dumps(
            {
                "table": str(arguments.out), "bytes": arguments.out.stat().st_size, "chains": found.used,
                "left_out": found.left_out, **description(found.table),
            },
            indent=1,
        )
    )  # fmt: skip
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.window_table")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
