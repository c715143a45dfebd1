"""Optimisations whose searches and latencies are planted: a greedy search, and a weighted number of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents.optimization import run
from agents.optimization.options import OptimizeOptions
from agents.optimization.outcome import Optimization
from agents.optimization.run import optimize_model
from graph_rewrite.task.problem import Problem, open_problem
from tests.agents.optimization.planted import LIMIT, Optimize, PlantedAgent
from tests.envs.fakes import OperatorCountMeter
from tests.graph_rewrite.replay.models import write_network


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> PlantedAgent:
    """The agent of every search; the meter counts operators, and the cache is the test's own."""
    made = PlantedAgent()

    def planted(*arguments: Any, **options: Any) -> Problem:
        return open_problem(*arguments, **options, meter=lambda model, *_: OperatorCountMeter(model.original))

    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(run, "make_agent", lambda spec: made)
    monkeypatch.setattr(run, "open_problem", planted)
    return made


@pytest.fixture
def optimize(agent: PlantedAgent, tmp_path: Path) -> Optimize:
    def optimize(seed: int, **options: Any) -> Optimization:
        path = write_network(tmp_path / f"network{seed}.onnx", seed=seed)
        return optimize_model(path, OptimizeOptions(**{"time_limit": LIMIT, "threads": "1", **options}))

    return optimize
