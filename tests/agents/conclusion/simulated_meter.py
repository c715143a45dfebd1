"""A meter whose clock and noise are planted: the worker's own timing code, run on models that only take time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph_rewrite.delivery import ship
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import FULL, SCREEN, Effort, Latency, Plan
from graph_rewrite.latency.estimates import latency_of
from graph_rewrite.runtime.ort_worker.statistics import Block, is_enough
from graph_rewrite.runtime.ort_worker.timing import block_budget, is_last_block, repeats_for, time_block
from graph_rewrite.system.deadline import check_time, seconds_left

SESSION_SD = 0.0046
"""Standard deviation of the log latency of sessions of one model: two of them differ by up to 1.3% (two standard
deviations of their difference)."""
RUN_SD = 0.02
"""The same of single runs within a session."""
BURST, BURST_SHARE = 1.25, 0.05
"""Factor on runs that other load on the machine slows down, and the share of such runs."""


class SimulatedClock:
    """Seconds that pass only where somebody works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def simulated_time(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedClock]:
    """Let budgets and deadlines go by a clock that the meter moves."""
    clock = SimulatedClock()
    with monkeypatch.context() as patch:
        patch.setattr("time.monotonic", clock)
        yield clock


def compare_in(monkeypatch: pytest.MonkeyPatch, clock: SimulatedClock, seconds: float) -> None:
    """Let the comparison of a saved graph take so many seconds, up to the time limit, and agree."""

    def compare(*given: object, **more: object) -> Equivalence:
        clock.now += min(seconds, seconds_left())
        check_time()
        return Equivalence(True, 0.0, 1e-4, "not compared here")

    monkeypatch.setattr(ship, "equivalent", compare)


class SimulatedMeter:
    """Measures graphs of known latency as the worker does: fresh sessions that differ, runs in turn that differ more.

    Args:
        baseline: the original.
        seconds: true seconds of a run, by graph.
        clock: moved by what a measurement takes.
        seed: of the noise.
        open_s: seconds for opening a session.
    """

    def __init__(
        self, baseline: Graph, seconds: Callable[[Graph], float], clock: SimulatedClock, seed: int, open_s: float = 0.3
    ) -> None:
        self.baseline, self.seconds, self.clock, self.open_s = baseline, seconds, clock, open_s
        self.rng = np.random.default_rng(seed)
        self.measurements = 0

    @classmethod
    def factory(cls, *arguments: Any) -> Callable[[Any, Any, Path], SimulatedMeter]:
        return lambda model, deployment, folder: cls(model.original, *arguments)

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        return self._take(self.baseline, graph, SCREEN if effort == "screen" else FULL)

    def compare(self, reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
        return self._take(reference, candidate, plan or FULL)

    def confirm(self, graph: Graph, plan: Plan | None = None) -> Latency:
        return self._take(self.baseline, graph, plan or FULL)

    def close(self) -> None:
        """Nothing to end."""

    def _take(self, baseline: Graph, candidate: Graph, plan: Plan) -> Latency:
        """Take a measurement as `ort_worker.worker.Worker._compare` does."""
        check_time()
        self.measurements += 1
        if baseline.hash == candidate.hash:
            plan = plan.without_patience()
        blocks: list[Block] = []
        within, began = seconds_left(), self.clock.now
        for number in range(1, plan.instances + 1):
            self.clock.now += 2 * self.open_s
            runs = [self._session(self.seconds(graph)) for graph in (baseline, candidate)]
            for run in runs * plan.warmup:
                run()
            spent = self.clock.now - began
            seconds = self.seconds(baseline), self.seconds(candidate)
            repeats = repeats_for(min(seconds))
            budget = block_budget(plan, within - spent, repeats * sum(seconds), spent, number)
            blocks.append(time_block(runs[0], runs[1], plan, repeats, budget, self.clock))
            elapsed = self.clock.now - began
            if is_enough(blocks, plan, elapsed) or is_last_block(elapsed, number, within):
                break
        self.clock.now += min(0.0, seconds_left())  # a worker is killed at the time limit
        check_time()
        timings = [(list(block.baseline), list(block.candidate), block.repeats) for block in blocks]
        return latency_of(timings, identical=baseline.hash == candidate.hash)

    def _session(self, seconds: float) -> Callable[[], None]:
        """Return the runs of a session of its own speed."""
        mine = seconds * math.exp(self.rng.normal(0.0, SESSION_SD))

        def run() -> None:
            burst = BURST if self.rng.random() < BURST_SHARE else 1.0
            self.clock.now += mine * burst * math.exp(self.rng.normal(0.0, RUN_SD))

        return run
