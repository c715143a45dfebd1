"""The meters by which a search chooses mutants."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.searching import cost_model
from agents.searching.mutants import measured_meters
from graph_rewrite.latency import MeasurementCache, OperatorCost, OperatorSpec
from graph_rewrite.latency.graph_operators import operators_of
from graph_rewrite.task.problem import open_problem
from tests.agents.optimization.test_mutants import ImageMeter, write


class PlantedCosts:
    """A meter of operators that notes how it is opened."""

    opened: list[dict[str, Any]]

    def __init__(self, *given: Any, **options: Any) -> None:
        self.opened.append(options)

    def cost(self, spec: OperatorSpec) -> OperatorCost:
        return OperatorCost(7.0)

    def is_known(self, spec: OperatorSpec) -> bool:
        return False


@pytest.mark.parametrize(("threads", "clock"), [(1, "cpu"), (2, "wall")])
def test_operators_are_priced_by_what_one_thread_computes(
    threads: int, clock: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So the choice does not depend on what else the machine runs; what was timed is kept for the next search."""
    monkeypatch.setattr(PlantedCosts, "opened", [], raising=False)
    monkeypatch.setattr(cost_model, "OperatorCostMeter", PlantedCosts)
    monkeypatch.setattr(cost_model, "_shared", {})
    monkeypatch.setattr(cost_model, "_meters", [])
    opened = open_problem(
        f"file:{write(tmp_path / 'm.onnx')}", provider="cpu", meter=lambda model, *_: ImageMeter(model.original)
    )
    problem = replace(opened, deployment=replace(opened.deployment, threads=threads), workspace=tmp_path)
    spec = next(iter(operators_of(problem.model.graph)))
    for _ in range(2):
        with measured_meters(problem) as meters:
            assert meters.price(spec) == 7.0
    (options,) = PlantedCosts.opened
    assert options["clock"] == clock
    assert isinstance(options["cache"], MeasurementCache)
