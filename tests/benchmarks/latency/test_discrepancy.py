"""The comparison of the cost model with the clock, on a model whose costs are known."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from benchmarks.latency import discrepancy
from benchmarks.latency.discrepancy import DiscrepancyRow, compare, read, table, write
from tests.agents.toys import WEIGHTS, chain_problem, costs_of_all, graph_cost

RUN_MS = 1.0
"""Time that this meter gives a run of any graph beside its operators."""


@pytest.fixture
def known_prices(monkeypatch: pytest.MonkeyPatch) -> None:
    from agents.searching.cost_model import OperatorPrices

    prices = OperatorPrices(lambda spec: 2.0 * WEIGHTS.get(spec.op, 1.0))
    monkeypatch.setattr(discrepancy, "operator_prices", lambda problem: prices)


@pytest.mark.usefixtures("known_prices")
def test_promise_and_measurement_of_the_graph_of_least_cost(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2)
    row = compare(problem, "chain")
    before, best = (cost - RUN_MS for cost in (graph_cost(problem.model.original), costs_of_all(2)[0]))
    assert row.sum_ms == pytest.approx(2.0 * before)
    assert row.promised == pytest.approx(before / best)
    assert row.difference == pytest.approx(row.sum_ms / row.end_to_end_ms - 1.0)
    assert row.measured is not None
    assert row.ci95 is not None
    assert row.ci95[0] <= row.measured <= row.ci95[1]


def test_a_graph_that_cannot_be_run_is_a_row_as_well(tmp_path: Path) -> None:
    rows = [
        DiscrepancyRow("a", 3, 1.5, 1.0, 1.2, 1.1, (1.0, 1.2), 2.0),
        DiscrepancyRow("b", 4, 0.5, 1.0, 2.0, None, None, 1.0),
    ]
    assert [line.split(" | ")[4:7] for line in table(rows).splitlines()[2:]] == [
        ["+50%", "1.200", "1.100"], ["-50%", "2.000", "failed"],
    ]  # fmt: skip
    write(tmp_path / "d", rows, {"device": "x", "load": 1.0})
    found: dict[str, Any] = json.loads((tmp_path / "d.json").read_text())
    assert found["device"] == "x"
    assert [math.isclose(row["difference"], value) for row, value in zip(found["rows"], (0.5, -0.5), strict=True)]
    assert "device x, load 1.0" in (tmp_path / "d.md").read_text()
    assert read(tmp_path / "d") == rows
    assert read(tmp_path / "other") == []
