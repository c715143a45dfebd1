"""Write the means of what steps save, by which `regional` orders what it tries.

    python -m benchmarks.learning.step_means
    python -m benchmarks.learning.step_means --tables mine.npz --out mine.json

What steps save in ONNX Runtime, whatever the processor, is learnt first; then what they save beyond that on each kind
of processor, and in another runtime. The same tables give the same file.
`python -m benchmarks.learning.search_order` tells what they are worth on architectures that they were not learnt from.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro

from agents.effects.learning_means import MeansLearner, Part, means_by_kind, means_of
from agents.effects.means_file import SHIPPED as MEANS
from agents.effects.means_file import save_means
from benchmarks import RESULTS
from benchmarks.protocol.searches.held_out import FURTHER
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.errors import UserError
from graph_rewrite.runtime import PROVIDERS
from graph_rewrite.system.commands import run_command

OTHER_RUNTIMES = (RESULTS / "learning" / "windows-openvino-intel-xeon-6-167.npz",)
"""Tables of other runtimes than ONNX Runtime."""


@dataclass(frozen=True)
class Arguments:
    """Write the means of what steps save."""

    tables: tuple[Path, ...] = (SHIPPED, *FURTHER, *OTHER_RUNTIMES)
    """Tables of windows; those of one table are of one runtime."""
    out: Path = MEANS
    """The file of the means."""


def _run(arguments: Arguments) -> int:
    tables = [WindowTable.load(path) for path in arguments.tables]
    parts: list[Part] = [(MeansLearner(table), None) for table in tables]
    means = means_of([part for part, table in zip(parts, tables, strict=True) if is_of_onnxruntime(table)])
    by_kind = means_by_kind(parts, means)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    save_means(arguments.out, means, by_kind)
    steps = {kind: sum(len(learner.timed(None, kind)) for learner, _ in parts) for kind in by_kind}
    print(json.dumps({"means": str(arguments.out), "bytes": arguments.out.stat().st_size, "steps": steps}))
    return 0


def is_of_onnxruntime(table: WindowTable) -> bool:
    """Return whether the windows of a table were timed in ONNX Runtime.

    Raises:
        UserError: some were, and some were not.
    """
    found = {PROVIDERS[window.provider].is_onnxruntime for window in table.windows}
    if len(found) != 1:
        raise UserError("a table has windows of several runtimes: make one of each runtime's labels")
    return found.pop()


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    arguments = tyro.cli(Arguments, args=argv, prog="python -m benchmarks.learning.step_means")
    return run_command(lambda: _run(arguments))


if __name__ == "__main__":
    sys.exit(main())
