"""Remembered results on a noisy machine: a small gain is confirmed without a search, and one that is gone is not
delivered, by the same statistics that the worker uses, on planted noise."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agents.conclusion.confirmation import surely_faster
from agents.core.base import Budget
from agents.optimization.options import OptimizeOptions
from agents.optimization.remembering import ResultRecall
from graph_rewrite.delivery import ship
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.ir.graph import Graph
from graph_rewrite.replay import record
from graph_rewrite.replay.memory import ResultMemory
from graph_rewrite.replay.remembered import RememberedResult
from tests.agents.conclusion.simulated_meter import SimulatedMeter, simulated_time
from tests.agents.toys import chain_problem

LIMIT = 60.0
Confirm = Callable[[float, float, float, int], bool]


@pytest.fixture
def confirm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Confirm:
    """Tells whether a remembered result is delivered: seconds of a run, what the rewrite makes of them now, what was
    remembered of it, and the seed of the noise."""
    monkeypatch.setattr(ship, "equivalent", lambda *given, **more: Equivalence(True, 0.0, 1e-4, "not compared here"))

    def ask(seconds: float, factor: float, speedup: float, seed: int) -> bool:
        problem = chain_problem(tmp_path, 3)
        graph = problem.model.graph
        candidate = problem.rewriter.candidates(graph)[0]
        with simulated_time(monkeypatch) as clock:

            def truth(graph: Graph) -> float:
                return seconds * (1.0 if all(n.op in ("Relu", "Tanh") for n in graph.nodes.values()) else factor)

            problem.meter = SimulatedMeter(problem.model.original, truth, clock, seed)  # type: ignore[assignment]
            memory = ResultMemory(tmp_path / "results")
            recall = ResultRecall(problem, OptimizeOptions(time_limit="60s", threads="1"), memory)
            recording = record(graph, problem.rewriter, [candidate], end=candidate.apply())
            memory.remember(RememberedResult(recording, speedup, LIMIT, recall.context))
            [start] = recall.starts()
            assert start.is_enough(LIMIT)
            budget = Budget(10**9, 0.7 * LIMIT, conclusion_s=18.0, deadline=clock.now + LIMIT)
            began = clock.now
            found = recall.confirmed(start, budget, None)
            took = clock.now - began
            assert took <= 0.5 * LIMIT, "half of the time is left for a search"
            assert took <= 15.0 or factor > 0.95, "a clear gain takes seconds"
            assert found is None or surely_faster(found.latency)
            for file in memory.folder.iterdir():
                file.unlink()
        return found is not None

    return ask


@pytest.mark.parametrize("seconds", [0.005, 0.03, 0.1])
def test_a_gain_of_three_per_cent_is_confirmed(confirm: Confirm, seconds: float) -> None:
    assert sum(confirm(seconds, 1.0 / 1.03, 1.03, seed) for seed in range(10)) >= 8


@pytest.mark.parametrize("seconds", [0.005, 0.03, 0.1])
def test_a_clear_gain_is_confirmed_in_seconds(confirm: Confirm, seconds: float) -> None:
    assert sum(confirm(seconds, 1.0 / 1.2, 1.2, seed) for seed in range(10)) == 10


@pytest.mark.parametrize("seconds", [0.005, 0.03, 0.1])
def test_a_gain_that_is_gone_is_not_delivered(confirm: Confirm, seconds: float) -> None:
    assert sum(confirm(seconds, 1.0, 1.03, seed) for seed in range(20)) <= 1


def test_a_loss_is_never_delivered(confirm: Confirm) -> None:
    assert not any(confirm(0.03, 1.03, 1.03, seed) for seed in range(10))
