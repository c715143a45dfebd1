"""The comparison of every contestant's outputs with the original's."""

from __future__ import annotations

import math
from pathlib import Path

from agents.reporting.runs import file_name
from benchmarks.protocol.judging.contestant_process import read_outputs
from graph_rewrite.runtime.ort_worker.values import compare_values


class OutputCheck:
    """Compares outputs that contestants wrote into a folder.

    Args:
        tolerance: largest error of a float, relative to the largest magnitude in the original's output.
    """

    def __init__(self, folder: Path, tolerance: float) -> None:
        self.folder, self.tolerance = folder, tolerance

    def path(self, name: str) -> Path:
        """Return the file for the outputs of a contestant."""
        return self.folder / f"{file_name(name)}.npz"

    def compared(self, original: str, contestant: str) -> tuple[float, str]:
        """Return the largest error of a contestant on any input, and what is wrong with it in words; the contestant's
        file is removed."""
        expected, found = read_outputs(self.path(original)), read_outputs(self.path(contestant))
        self.path(contestant).unlink()
        worst, problem = 0.0, ""
        for place, (values, others) in enumerate(zip(expected, found, strict=True)):
            if len(values) != len(others):
                return math.inf, f"it has {len(others)} outputs instead of {len(values)}"
            for number, (value, other) in enumerate(zip(values, others, strict=True)):
                error, wrong = compare_values(value, other)
                if not wrong and not error <= self.tolerance:
                    wrong = f"differs by {error:.2g} of its scale, more than {self.tolerance:.2g}"
                if wrong and not problem:
                    problem = f"output {number} on input {place} {wrong}"
                worst = max(worst, error)
        return worst, problem
