"""Optimisations whose searches and latencies are planted: a greedy search, and a weighted number of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from tests.agents.optimization.planted import LIMIT, Optimize, PlantedAgent, plant
from tests.graph_rewrite.replay.models import write_network


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlantedAgent:
    """The agent of every search; the meter counts operators, and the cache is the test's own."""
    return plant(monkeypatch, tmp_path / "cache")


@pytest.fixture
def optimize(agent: PlantedAgent, tmp_path: Path) -> Optimize:
    def optimize(seed: int, **options: Any) -> Optimization:
        path = write_network(tmp_path / f"network{seed}.onnx", seed=seed)
        return optimize_model(path, OptimizeOptions(**{"time_limit": LIMIT, "threads": "1", **options}))

    return optimize
