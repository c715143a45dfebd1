"""The last look at a winner: its saved file, opened as deployed in a fresh process, must not be slower than the
original."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from graph_rewrite.delivery.ship import CheckedModel
from graph_rewrite.latency import BaselineError, Latency, Plan
from graph_rewrite.latency.files import deployed_latency
from graph_rewrite.system.deadline import OutOfTime, seconds_left
from graph_rewrite.task.problem import Problem

PLAN = Plan(instances=4, min_instances=2, min_pairs=5, max_pairs=20, target_ci_width=0.04, budget_s=2.0)
"""The plan of that measurement: long enough to see a loss, not to tell small gains apart."""


@dataclass(slots=True)
class FreshProcess:
    """Times a winner's saved file as it will be deployed, in fresh processes.

    Args:
        problem: says how models are measured.
        checked: the saved winner.
        original: the original, as a file that can be run.
    """

    problem: Problem
    checked: CheckedModel
    original: Path
    _timed: bool = False

    def latency(self, plan: Plan) -> Latency | None:
        """Return the latency of the file by a plan; None where it cannot be timed, or the original cannot.

        Raises:
            OutOfTime: the time limit is reached.
        """
        problem, checked = self.problem, self.checked
        with suppress(BaselineError):
            found = deployed_latency(
                problem.meter, self.original, checked.path, checked.deployment, workspace=problem.workspace, plan=plan
            )
            self._timed = found is not None
            return found
        return None

    def complaint(self) -> str:
        """Return what is wrong with the file as it runs there; empty where it is not surely slower than the original. A
        file that no time is left to measure, or that cannot be timed, passes: it was measured before it was saved. So
        does one that was timed here already."""
        if self._timed:
            return ""
        left = seconds_left()
        plan = PLAN if math.isinf(left) else replace(PLAN, budget_s=max(0.0, min(PLAN.budget_s, 0.3 * left)))
        with suppress(OutOfTime):
            found = self.latency(plan)
            return "" if found is None else _complaint(found)
        return ""


def _complaint(found: Latency) -> str:
    if not found.ok:
        return f"the saved file does not run in a fresh process: {found.message}"
    low, high = found.ci95
    if high >= 1.0:
        return ""
    return (
        f"the saved file is slower than the original in a fresh process: x{found.speedup:.3f} ({low:.3f} to {high:.3f})"
    )
