"""The choice among the best graphs where time is short: by comparisons in turn, on planted noise."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agents.conclusion.confirmation import over
from agents.conclusion.finalists import finalists_of, measured_finalists
from agents.core.base import Action, Budget, Search
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, LatencyMeter
from graph_rewrite.system.deadline import ending_at
from tests.agents.conclusion.simulated_meter import SimulatedMeter, simulated_time
from tests.agents.toys import ExactMeter, chain_problem

Choose = Callable[[float, Sequence[float], float, int], tuple[float, float]]


@pytest.fixture
def choose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Choose:
    """Screens graphs of a model that takes so many seconds, with these speed-ups, and chooses one in 1,000 s or less.
    Returns the speed-up of the chosen one and the seconds that the choice took."""

    def chosen(seconds: float, speedups: Sequence[float], limit: float, seed: int) -> tuple[float, float]:
        problem = chain_problem(tmp_path, 8)
        true: dict[str, float] = {}
        with simulated_time(monkeypatch) as clock:

            def truth(graph: Graph) -> float:
                return seconds / true.get(graph.hash, 1.0)

            problem.meter = SimulatedMeter(problem.model.original, truth, clock, seed)  # type: ignore[assignment]
            search = Search(problem, Budget(10**9, 60.0, deadline=clock.now + 1000.0))
            for candidate, speedup in zip(problem.rewriter.candidates(problem.model.graph), speedups, strict=False):
                graph = candidate.apply()
                true[graph.hash] = speedup
                search.measure(graph, (Action(candidate.key, candidate.rule, "", 1),))
            began = clock.now
            with ending_at(began + limit):
                first = measured_finalists(search)[0]
            return true[first[0].graph.hash], clock.now - began

    return chosen


@pytest.mark.parametrize(
    ("seconds", "speedups", "limit"), [(0.1, (1.24, 1.28), 15.0), (0.3, (1.7, 1.8), 25.0), (0.05, (1.06, 1.1), 22.0)]
)
def test_the_faster_of_two_that_a_screen_cannot_tell_apart_is_chosen(
    choose: Choose, seconds: float, speedups: tuple[float, float], limit: float
) -> None:
    """By screened latencies alone, it is 33 or 34 of 50."""
    found = [choose(seconds, speedups, limit, seed) for seed in range(50)]
    assert sum(speedup == max(speedups) for speedup, _ in found) >= 48
    assert max(took for _, took in found) < 0.4 * limit


def test_of_three_the_choice_loses_little(choose: Choose) -> None:
    found = [choose(0.1, (1.24, 1.28, 1.26), 15.0, seed)[0] for seed in range(50)]
    assert sum(1.28 / speedup - 1.0 for speedup in found) / len(found) < 0.004


def test_where_the_lead_is_small_and_sure_the_choice_gets_more_time(choose: Choose) -> None:
    """With half of that time it loses 0.0033 on average."""
    found = [choose(0.05, (1.07, 1.08, 1.09, 1.085), 22.0, seed) for seed in range(60)]
    assert sum(1.09 / speedup - 1.0 for speedup, _ in found) / len(found) < 0.0025
    assert max(took for _, took in found) < 0.4 * 22.0


def test_without_the_time_for_a_comparison_the_screened_latencies_decide(choose: Choose) -> None:
    assert choose(1.0, (1.24, 1.28), 15.0, 0)[1] == 0.0


def test_what_is_surely_behind_is_not_compared(choose: Choose) -> None:
    assert choose(0.1, (1.1, 1.6), 15.0, 0) == (1.6, 0.0)


def test_without_finalists_there_is_nothing_to_choose(tmp_path: Path) -> None:
    search = Search(chain_problem(tmp_path, 2), Budget())
    search.measure(search.problem.model.graph, ())
    assert measured_finalists(search) == []
    with ending_at(time.monotonic() + 15.0):
        assert measured_finalists(search) == []


@pytest.mark.parametrize(
    ("measured", "chosen"),
    [
        ([(0.97, 0.06), (0.99, 0.05), (0.98, 0.2)], [0.99]),
        ([(0.97, 0.06), (0.999, 0.01)], [0.97]),  # the second gains a hundredth at most
        ([(0.999, 0.01), (1.002, 0.01), (0.99, 0.05)], [1.002]),
        ([(0.999, 0.01), (0.9, 0.05)], []),
    ],
)
def test_where_nothing_seems_faster_what_may_be_so_is_the_only_finalist(
    tmp_path: Path, measured: Sequence[tuple[float, float]], chosen: Sequence[float]
) -> None:
    problem = chain_problem(tmp_path, 3)
    search = Search(problem, Budget())
    known = problem.meter.measure(problem.model.graph)
    for (speedup, half), candidate in zip(measured, problem.rewriter.candidates(problem.model.graph), strict=False):
        latency = replace(known, speedup=speedup, ci95=(speedup - half, speedup + half))
        search.measure(candidate.apply(), (Action(candidate.key, candidate.rule, "", 1),), latency)
    assert search.measurements == len(measured)
    assert [visit.latency.speedup for visit in finalists_of(search)] == chosen


def test_a_meter_that_compares_nothing_leaves_the_order_as_it_was(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    assert isinstance(problem.meter, ExactMeter)
    assert not hasattr(problem.meter, "compare")
    meter: LatencyMeter = problem.meter
    search = Search(problem, Budget())
    for speedup, candidate in zip((1.3, 1.28), problem.rewriter.candidates(problem.model.graph), strict=False):
        latency = replace(meter.measure(problem.model.graph), speedup=speedup, ci95=(speedup - 0.1, speedup + 0.1))
        search.measure(candidate.apply(), (Action(candidate.key, candidate.rule, "", 1),), latency)
    with ending_at(time.monotonic() + 15.0):
        assert [latency.speedup for _, latency in measured_finalists(search)] == [1.3, 1.28]


def test_a_ratio_tells_of_one_graph_what_is_known_of_the_other() -> None:
    known = Latency(8.0, 1.25, (1.25 / 1.02, 1.25 * 1.02), 10, 10.0)
    ratio = Latency(8.0, 1.1, (1.1 / 1.03, 1.1 * 1.03), 10, 8.8)
    told = over(known, ratio)
    assert (told.speedup, told.ms) == (pytest.approx(1.375), pytest.approx(8.0 / 1.1))
    half = math.hypot(math.log(1.02), math.log(1.03))
    assert told.ci95 == pytest.approx((1.375 * math.exp(-half), 1.375 * math.exp(half)))
    back = over(told, ratio, inverse=True)
    assert (back.speedup, back.ms) == (pytest.approx(1.25), pytest.approx(8.0))
    failed = Latency.failed("crash", "signal 11")
    assert over(failed, ratio) is failed
