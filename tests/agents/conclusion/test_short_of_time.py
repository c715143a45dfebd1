"""Large leads of slow models, with little time for comparing the best, checking and confirming, on planted noise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.conclusion.conclude import conclude
from agents.core.base import Action, Budget, Search
from graph_rewrite.ir.graph import Graph
from tests.agents.conclusion.simulated_meter import SimulatedMeter, compare_in, simulated_time
from tests.agents.toys import chain_problem

SPEEDUPS = (1.28, 1.3, 1.26)
"""True speed-ups of the graphs that a search has measured."""
OPEN_S = 0.7
"""Seconds in which a session is opened."""
Concluded = Callable[[float, float, float, int], float]


@pytest.fixture
def concluded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Concluded:
    """Concludes a search of a model that takes so many seconds, within a limit. Comparing outputs takes `comparison_s`.
    Returns the true speed-up of what is handed over."""

    def run(seconds: float, limit: float, comparison_s: float, seed: int) -> float:
        problem, true = chain_problem(tmp_path, 8), dict[str, float]()
        with simulated_time(monkeypatch) as clock:
            compare_in(monkeypatch, clock, comparison_s)

            def truth(graph: Graph) -> float:
                return seconds / true.get(graph.hash, 1.0)

            meter = SimulatedMeter(problem.model.original, truth, clock, seed, OPEN_S)
            problem.meter = meter  # type: ignore[assignment]
            search = Search(problem, Budget(10**9, 60.0))
            for candidate, speedup in zip(problem.rewriter.candidates(problem.model.graph), SPEEDUPS, strict=False):
                graph = candidate.apply()
                true[graph.hash] = speedup
                search.measure(graph, (Action(candidate.key, candidate.rule, "", 1),))
            search.budget = Budget(10**9, 60.0, conclusion_s=limit, deadline=clock.now + limit)
            return true.get(conclude(search, "test").graph.hash, 1.0)

    return run


@pytest.mark.parametrize(
    ("seconds", "limit", "comparison_s"),
    [(0.1, 14.0, 3.7), (0.15, 14.0, 4.8), (0.2, 14.0, 5.9), (0.2, 18.0, 5.9), (0.3, 14.0, 8.1), (0.3, 24.0, 8.1)],
)
def test_a_large_lead_is_kept(concluded: Concluded, seconds: float, limit: float, comparison_s: float) -> None:
    found = [concluded(seconds, limit, comparison_s, seed) for seed in range(10)]
    assert min(found) > 1.0
    assert sum(found) / len(found) > 1.275
