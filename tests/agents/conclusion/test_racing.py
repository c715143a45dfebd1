"""The race among measured graphs: what may be the fastest is measured again until it is known, on planted noise."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from agents.conclusion import racing
from agents.conclusion.racing import INDIFFERENCE, race, upper
from agents.core.base import Action, Budget, Search
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency
from tests.agents.conclusion import simulated_meter
from tests.agents.conclusion.simulated_meter import SimulatedClock, SimulatedMeter, simulated_time
from tests.agents.toys import chain_problem

RUN_S = 0.003
Field = Callable[[Sequence[float], int], tuple[Search, list[float]]]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimulatedClock]:
    """Sessions of one model differ by 2.5%, as those of a small network with large weights do."""
    monkeypatch.setattr(simulated_meter, "SESSION_SD", 0.025)
    with simulated_time(monkeypatch) as clock:
        yield clock


@pytest.fixture
def field(tmp_path: Path, clock: SimulatedClock) -> Field:
    """Measures graphs of these speed-ups once each; returns the search, and the speed-ups of its visits in turn."""

    def measured(speedups: Sequence[float], seed: int) -> tuple[Search, list[float]]:
        problem, true = chain_problem(tmp_path, len(speedups)), dict[str, float]()
        search = Search(problem, Budget(10**9, 1000.0))
        meter = SimulatedMeter(
            problem.model.original, lambda graph: RUN_S / true.get(graph.hash, 1.0), clock, seed, open_s=0.05
        )
        problem.meter = meter  # type: ignore[assignment]
        for candidate, speedup in zip(problem.rewriter.candidates(problem.model.graph), speedups, strict=True):
            graph = candidate.apply()
            true[graph.hash] = speedup
            search.measure(graph, (Action(candidate.key, candidate.rule, "", 1),))
        return search, list(speedups)

    return measured


def truth_of(search: Search, speedups: Sequence[float], graph: Graph) -> float:
    return dict(zip(search.visits, speedups, strict=True))[graph.hash]


def test_of_many_that_were_measured_once_the_fastest_is_found(field: Field, clock: SimulatedClock) -> None:
    """By the single measurements alone it is in 13 of 20 cases."""
    raced, screened = 0, 0
    for seed in range(20):
        search, speedups = field([1.0, 1.01, 0.99, 1.04, 1.0, 0.97, 1.01, 1.0], seed)
        lucky = max(search.visits.values(), key=lambda visit: visit.latency.speedup)
        screened += truth_of(search, speedups, lucky.graph) == 1.04
        began = clock.now
        first, *others = race(search, search.visits.values(), 1, lambda began=began: clock.now >= began + 20.0)
        raced += truth_of(search, speedups, first.graph) == 1.04
        assert clock.now <= began + 22.0
        assert len(others) == 7
        assert search.visits[first.graph.hash] is first
    assert raced >= 18
    assert screened == 13


def test_it_ends_once_the_fastest_are_known(field: Field, clock: SimulatedClock) -> None:
    search, speedups = field([1.3, 1.0, 1.31, 1.01], 0)
    ranked = race(search, search.visits.values(), 2, lambda: False)
    assert {truth_of(search, speedups, visit.graph) for visit in ranked[:2]} == {1.3, 1.31}
    worst = min(search.worth(visit.graph, visit.latency) for visit in ranked[:2])
    assert max(upper(search, visit.graph, visit.latency) for visit in ranked[2:]) <= worst + INDIFFERENCE


def test_none_is_measured_for_ever(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    """None of two equally fast graphs is ever known to be the faster."""
    monkeypatch.setattr(racing, "MOST_LOOKS", 3)
    search, _ = field([1.0, 1.0], 0)
    asked = Counter[str]()
    confirm = search.problem.confirm

    def counted(graph: Graph, *given: Any) -> Latency:
        asked[graph.hash] += 1
        return confirm(graph, *given)

    search.problem.confirm = counted  # type: ignore[method-assign]
    for _ in range(2):
        race(search, search.visits.values(), 1, lambda: False)
    assert asked == dict.fromkeys(search.visits, 3)
    assert {visit.looks for visit in search.visits.values()} == {3}


def test_a_second_race_goes_on_from_the_first(field: Field, clock: SimulatedClock) -> None:
    """Every look at a graph is a measurement of its own."""
    search, _ = field([1.0, 1.0], 0)
    for _ in range(2):
        last = clock.now + 5.0
        race(search, search.visits.values(), 1, lambda last=last: clock.now >= last)
    meter = search.problem.meter
    assert isinstance(meter, SimulatedMeter)
    looks = sum(visit.looks for visit in search.visits.values())
    assert meter.measurements == 2 + looks > 6


def test_without_time_the_single_measurements_decide(field: Field) -> None:
    search, _ = field([1.0, 1.02, 1.01], 0)
    before = dict(search.visits)
    ranked = race(search, search.visits.values(), 1, lambda: True)
    assert search.visits == before
    assert [visit.latency.speedup for visit in ranked] == sorted((v.latency.speedup for v in ranked), reverse=True)


def test_a_graph_that_fails_when_it_is_measured_again_comes_last(field: Field, monkeypatch: pytest.MonkeyPatch) -> None:
    search, _ = field([1.0, 1.0], 0)
    first = max(search.visits.values(), key=lambda visit: visit.latency.speedup).graph
    confirm = search.problem.confirm

    def failing(graph: Graph, *given: Any) -> Latency:
        return Latency.failed("oom", "no memory") if graph.hash == first.hash else confirm(graph, *given)

    monkeypatch.setattr(search.problem, "confirm", failing)
    ranked = race(search, search.visits.values(), 1, lambda: False)
    assert ranked[-1].graph.hash == first.hash
    assert not ranked[-1].latency.ok


def test_a_meter_that_measures_once_only_leaves_the_order_as_it_is(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 3)
    search = Search(problem, Budget())
    for candidate in problem.rewriter.candidates(problem.model.graph):
        search.measure(candidate.apply(), ())
    before = dict(search.visits)
    race(search, search.visits.values(), 1, lambda: False)
    assert search.visits == before


def test_a_later_search_pays_for_the_same_looks(field: Field, clock: SimulatedClock) -> None:
    """Agents that are compared share what the problem remembers, and none of them gains by coming later."""
    search, _ = field([1.0, 1.02, 1.01], 0)
    before, screened = search.seconds, dict(search.visits)
    race(search, search.visits.values(), 1, lambda: False)
    paid = search.seconds - before
    assert paid > 1.0
    later = Search(search.problem, search.budget)
    later.visits.update(screened)
    before, real = later.seconds, clock.now
    race(later, later.visits.values(), 1, lambda: False)
    assert clock.now == real
    assert later.seconds - before == pytest.approx(paid, rel=0.01)
