"""A meter that needs no clock: every graph other than the original is faster, by how much its hash tells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Effort, Latency
from graph_rewrite.task.models import Model
from tests.envs.fakes import OperatorCountMeter

BASELINE_MS = 10.0


class PlantedMeter(OperatorCountMeter):
    """Speed-ups from 1.1 to 2.1, drawn by the graph's hash, so that a search takes rewrites wherever there are some."""

    def measure(self, graph: Graph, effort: Effort = "screen") -> Latency:
        self.measured.append(graph.hash)
        speedup = 1.0 if graph.hash == self.baseline.hash else 1.1 + int(graph.hash[:6], 16) / 16**6
        return Latency(BASELINE_MS / speedup, speedup, (speedup, speedup), 1, BASELINE_MS)


def _meter(model: Model, *_: Any, **__: Any) -> PlantedMeter:
    return PlantedMeter(model.original)


@contextmanager
def planted_gains() -> Iterator[None]:
    """Let whole optimisations of this process measure with `PlantedMeter`."""
    with mock.patch("graph_rewrite.task.problem.shared_meter", _meter):
        yield
