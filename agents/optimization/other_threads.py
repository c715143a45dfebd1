"""The result of an optimisation measured with further numbers of threads, models of single shapes included."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from agents.conclusion.confirmation import judging_plan
from agents.core.base import OptimizationResult
from agents.optimization.dynamic import measure_at
from agents.optimization.judging_shapes import Judged, measure_own
from graph_rewrite.errors import MachineError
from graph_rewrite.latency import Latency
from graph_rewrite.symbolic.bindings import DimensionBindings
from graph_rewrite.symbolic.lanes import NotGeneralError
from graph_rewrite.system.cpu_count import threads_in_words
from graph_rewrite.system.deadline import OutOfTime, ending_at
from graph_rewrite.task.problem import Problem

Open = Callable[[int, DimensionBindings], Problem]
"""Opens the model for a number of threads, at the first of some bindings."""
ByThreads = tuple[tuple[int, Latency], ...]
"""Latencies by number of threads."""


@dataclass(frozen=True, slots=True)
class OtherThreads:
    """Measurements with further numbers of threads, each within its part of the time.

    Args:
        counts: the numbers of threads.
        open: opens the model.
        bindings: the sizes of the model's symbolic dimensions.
        ends: the moment of `time.monotonic` at which the last measurement ends.
    """

    counts: Sequence[int]
    open: Open
    bindings: DimensionBindings
    ends: float

    def measure(
        self, result: OptimizationResult, own: Sequence[Judged], *, static: bool
    ) -> tuple[ByThreads, list[ByThreads]]:
        """Measure a result, and the models of single shapes beside it, with each number of threads.

        Args:
            static: the result has fixed shapes.

        Returns:
            The latencies of the result, and those of each model of a single shape.
        """
        found: list[list[tuple[int, Latency]]] = [[] for _ in range(1 + len(own))]
        left = len(self.counts) * len(found)
        for count in self.counts:
            for number, latencies in enumerate(found):
                seconds = max(0.0, self.ends - time.monotonic()) / left
                with ending_at(time.monotonic() + seconds):
                    latencies.append((count, self._measured(count, result, own, number, static, seconds)))
                left -= 1
        general, *others = map(tuple, found)
        return general, others

    def _measured(
        self,
        count: int,
        result: OptimizationResult,
        own: Sequence[Judged],
        number: int,
        static: bool,
        seconds: float,
    ) -> Latency:
        plan = judging_plan(2 * seconds)
        try:
            if number:
                one = own[number - 1]
                at_shape = replace(self.bindings, values=(one.found.values,))
                return measure_own(one, self.open(count, at_shape), self.bindings, plan)
            problem = self.open(count, self.bindings)
            if result.is_original:
                ms = problem.measure(problem.model.original, "full").ms
                return Latency(ms, 1.0, (1.0, 1.0), 1, ms)
            if not self.bindings.inputs.is_static and not static:
                return measure_at(problem, result.graph, self.bindings, plan)[0]
            return problem.confirm(result.graph, plan)
        except OutOfTime:
            return Latency.failed("error", "no time was left")
        except (MachineError, NotGeneralError) as error:
            return Latency.failed("error", str(error))


def thread_entry(count: int, latency: Latency) -> dict[str, Any]:
    """Return a latency with a number of threads as JSON."""
    return {
        "threads": count, "speedup": latency.speedup, "speedup_ci95": list(latency.ci95),
        "latency_ms": latency.to_json()["ms"],
    }  # fmt: skip


def threads_warning(count: int, latency: Latency, what: str = "the result") -> str:
    """Return what a user should know of a result with a number of threads; empty where that is nothing."""
    if not latency.ok:
        return f"with {threads_in_words(count)} {what} cannot be measured: {latency.message}"
    if latency.ci95[1] >= 1.0:
        return ""
    return (
        f"with {threads_in_words(count)} {what} is slower than the original: "
        f"x{latency.speedup:.3f} ({latency.ci95[0]:.3f} to {latency.ci95[1]:.3f})"
    )
