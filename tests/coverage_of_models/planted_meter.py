"""Whole optimisations without a clock: every rewrite gains, by how much its graph's hash tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency
from graph_rewrite.runtime.ort_worker import comparison
from graph_rewrite.task.models import Model
from tests.envs.fakes import OperatorCountMeter

BASELINE_MS = 10.0
OPTIONS = {"agent": "greedy", "memory": False, "size_price": 0.0, "max_size_growth": 100.0}
"""Options of `rewritegym.optimize` with which a planted gain decides alone."""


class PlantedMeter(OperatorCountMeter):
    """Speed-ups from 1.1 to 2.1, drawn by the graph's hash, so that a search takes rewrites wherever there are some."""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        speedup = 1.0 if graph.hash == self.baseline.hash else 1.1 + int(graph.hash[:6], 16) / 16**6
        return Latency(BASELINE_MS / speedup, speedup, (speedup, speedup), 1, BASELINE_MS)


def _meter(model: Model, *_: Any, **__: Any) -> PlantedMeter:
    return PlantedMeter(model.original)


@contextmanager
def planted_gains(*, in_process: bool = False) -> Iterator[None]:
    """Let whole optimisations of this process measure with `PlantedMeter`.

    Args:
        in_process: run models in this process too, where a process each would take longer than the comparison.
    """
    with ExitStack() as stack:
        stack.enter_context(mock.patch("graph_rewrite.task.problem.shared_meter", _meter))
        if in_process:
            stack.enter_context(mock.patch.object(comparison, "follow"))  # it would leave Ctrl-C to a parent
            for module in ("comparison_process", "acceptance"):
                stack.enter_context(mock.patch(f"graph_rewrite.delivery.{module}.run_leaf", _run_directly))
        yield


def _run_directly(command: Sequence[str], timeout_s: float) -> SimpleNamespace:
    assert command[-3] == "ort_worker.comparison"
    return SimpleNamespace(returncode=comparison.main(list(command[-2:])), stderr="")
