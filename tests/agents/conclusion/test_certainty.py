"""Small leads on a noisy machine: told from none, by the same statistics that the worker uses, on planted noise."""

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agents.conclusion.conclude import _limited, conclude
from agents.conclusion.confirmation import confirmed, is_doubtful, simultaneous, surely_faster
from agents.core.base import Action, Budget, OptimizationResult, Search, Visit
from agents.core.records import Improvement
from agents.core.registry import make_agent
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, Plan
from graph_rewrite.latency.estimates import pooled
from graph_rewrite.system.deadline import OutOfTime, ending_at, seconds_left
from tests.agents.conclusion.simulated_meter import SimulatedMeter, compare_in, simulated_time
from tests.agents.toys import chain_problem

SITES, FASTER_AT = 8, 3
"""Activations of the model, and the one that is worth writing otherwise."""
Find = Callable[..., tuple[OptimizationResult, float]]


def rewritten(graph: Graph) -> bool:
    """Return whether the activation that matters is written otherwise."""
    return [node.op for node in graph.order() if node.op != "Tanh"][FASTER_AT] != "Relu"


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Searches a model of so many seconds, which one rewrite makes faster by a factor, in a time limit. Its outputs are
    compared in `comparison_s` seconds."""

    def search(
        seconds: float, factor: float, limit: float, seed: int, comparison_s: float = 0.0
    ) -> tuple[OptimizationResult, float]:
        problem = chain_problem(tmp_path, SITES)
        with simulated_time(monkeypatch) as clock:
            compare_in(monkeypatch, clock, comparison_s)

            def truth(graph: Graph) -> float:
                return seconds * (factor if rewritten(graph) else 1.0)

            problem.meter = SimulatedMeter(problem.model.original, truth, clock, seed)  # type: ignore[assignment]
            began, conclusion = clock.now, 0.3 * limit
            budget = Budget(
                10**9, limit - conclusion, conclusion_s=conclusion, deadline=began + limit, telling_s=0.1 * limit
            )
            return make_agent("greedy").optimize(problem, budget, seed=seed), clock.now - began

    return search


def times_found(find: Find, seconds: float, factor: float, limit: float, comparison_s: float = 0.0) -> int:
    """Return how many of ten searches, all of which keep the time limit, find the faster form and are sure of it."""
    found = 0
    for seed in range(10):
        result, took = find(seconds, factor, limit, seed, comparison_s)
        assert took <= limit
        found += rewritten(result.graph) and surely_faster(result.latency)
    return found


CASES = [(0.005, 30.0), (0.03, 60.0), (0.1, 60.0), (0.1, 120.0)]
"""Seconds of a run, and the time limit: a session takes 0.3 s to open."""


@pytest.mark.parametrize(("seconds", "limit"), CASES)
def test_a_lead_of_three_per_cent_is_found_and_confirmed(find: Find, seconds: float, limit: float) -> None:
    assert times_found(find, seconds, 0.97, limit) >= 8


@pytest.mark.parametrize(("seconds", "limit"), CASES)
def test_where_nothing_is_faster_the_original_is_kept(find: Find, seconds: float, limit: float) -> None:
    kept = sum(find(seconds, 1.0, limit, seed)[0].is_original for seed in range(20))
    assert kept >= 19


@pytest.mark.parametrize(("seconds", "limit"), [(0.25, 60.0), (0.6, 120.0)])
def test_a_slow_model_s_lead_of_a_tenth_is_confirmed(find: Find, seconds: float, limit: float) -> None:
    assert times_found(find, seconds, 0.9, limit) >= 8


def test_a_comparison_that_takes_long_costs_no_lead(find: Find) -> None:
    """Extreme inputs may lead to exact arithmetic, which takes as long as many runs."""
    assert times_found(find, 0.1, 0.9, 60.0, comparison_s=7.0) >= 8


def test_what_is_slower_is_never_reported(find: Find) -> None:
    assert all(not rewritten(find(0.03, 1.02, 60.0, seed)[0].graph) for seed in range(10))


class TestMissed:
    """The search measured one graph, which did not seem to be faster, on a model so slow that it has no time for
    more."""

    SCREENED, SECONDS = Latency(500.0, 0.995, (0.93, 1.06), 3, 500.0), 0.5

    @pytest.fixture
    def conclude_from(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., OptimizationResult]:
        def concluded(factor: float, seed: int, *, provisional: bool = False) -> OptimizationResult:
            problem = chain_problem(tmp_path, 2)
            candidate = problem.rewriter.candidates(problem.model.graph)[0]
            found = candidate.apply()
            with simulated_time(monkeypatch) as clock:
                compare_in(monkeypatch, clock, 5.0)

                def truth(measured: Graph) -> float:
                    return self.SECONDS * (factor if measured.hash == found.hash else 1.0)

                problem.meter = SimulatedMeter(problem.model.original, truth, clock, seed)  # type: ignore[assignment]
                search = Search(problem, Budget(100, 20.0, deadline=clock.now + 40.0, provisional=provisional))
                search.measure(found, (Action(candidate.key, candidate.rule, "", 1),), self.SCREENED)
                return conclude(search, "test")

        return concluded

    def test_it_is_measured_again_in_the_time_that_is_left(
        self, conclude_from: Callable[..., OptimizationResult]
    ) -> None:
        found = [conclude_from(0.9, seed) for seed in range(10)]
        assert sum(not result.is_original and surely_faster(result.latency) for result in found) >= 9

    def test_it_is_kept_only_where_it_is_surely_faster(self, conclude_from: Callable[..., OptimizationResult]) -> None:
        assert all(conclude_from(1.0, seed).is_original for seed in range(10))

    def test_a_choice_that_nobody_confirms_is_by_what_seems_faster(
        self, conclude_from: Callable[..., OptimizationResult]
    ) -> None:
        for factor in (0.9, 1.03):
            found = [conclude_from(factor, seed, provisional=True).is_original for seed in range(5)]
            assert found == [factor > 1.0] * 5


class TestPooled:
    @staticmethod
    def latency(speedup: float, half: float) -> Latency:
        ends = (speedup * math.exp(-half), speedup * math.exp(half))
        return Latency(10.0 / speedup, speedup, ends, 10, 10.0)

    def test_two_alike_measurements_are_narrower_than_either(self) -> None:
        one = self.latency(1.03, 0.03)
        both = pooled(one, one)
        assert both.speedup == pytest.approx(1.03)
        assert math.log(both.ci95[1] / both.ci95[0]) / 2 == pytest.approx(0.03 / math.sqrt(2))
        assert (both.runs, both.baseline_ms) == (20, pytest.approx(10.0))
        assert is_doubtful(one)
        assert surely_faster(both)

    def test_the_surer_one_counts_more(self) -> None:
        assert pooled(self.latency(1.00, 0.01), self.latency(1.03, 0.03)).speedup == pytest.approx(1.003, abs=2e-4)

    def test_where_they_contradict_each_other_the_interval_holds_both(self) -> None:
        both = pooled(self.latency(1.00, 0.01), self.latency(1.10, 0.01))
        assert both.ci95[0] < 1.0 < 1.10 < both.ci95[1]

    def test_an_interval_that_knows_nothing_adds_nothing(self) -> None:
        sure, blind = self.latency(1.05, 0.01), Latency(9.0, 1.2, (0.0, math.inf), 1, 10.0)
        assert pooled(sure, blind) == pooled(blind, sure) == sure

    def test_a_failure_is_not_forgotten(self) -> None:
        sure, failed = self.latency(1.05, 0.01), Latency.failed("crash", "signal 11")
        assert pooled(sure, failed) is pooled(failed, sure) is failed

    def test_intervals_hold_the_truth_as_often_as_they_say(self) -> None:
        rng, held = np.random.default_rng(0), 0
        for _ in range(400):
            halves = rng.uniform(0.005, 0.03, 2)
            found = [self.latency(math.exp(rng.normal(0.02, half / 1.96)), half) for half in halves]
            low, high = pooled(*found).ci95
            held += low < math.exp(0.02) < high
        assert held >= 0.94 * 400


def test_the_last_of_the_search_goes_to_telling_only_where_the_lead_is_small(tmp_path: Path) -> None:
    search = Search(chain_problem(tmp_path), Budget(seconds=50.0, telling_s=10.0))
    allowed = []
    for speedup in (1.0, 1.04, 1.3):
        search.improvements.append(Improvement(0.0, 1, 1, speedup, 10.0))
        allowed.append(search.allowed)
    assert allowed == [50.0, 40.0, 50.0]


class TestConfirmed:
    """Measurements of a search count as far as luck in its choice allows."""

    @pytest.fixture
    def search(self, tmp_path: Path) -> Search:
        return Search(chain_problem(tmp_path), Budget(deadline=time.monotonic() + 1000.0))

    @staticmethod
    def visited(search: Search, first: Latency, count: int) -> Graph:
        """Let a search have measured some graphs, all alike. Return one of them."""
        candidates = search.problem.rewriter.candidates(search.problem.model.graph)[:count]
        graphs = [candidate.apply() for candidate in candidates]
        assert len(graphs) == count
        for graph in graphs:
            search.visits[graph.hash] = Visit(graph, first, (Action("key", "Rule", "a rule", 1),))
        return graphs[0]

    @staticmethod
    def confirm(search: Search, graph: Graph, first: Latency, anew: Latency | None, took: float = 0.0) -> Latency:
        """Confirm a graph in 30 s, of which 6 s are kept for the check. The search took `took` seconds to measure it;
        no other measurement comes to its end where `anew` is None."""

        def measured(graph: Graph, plan: Plan | None = None, look: int = 0) -> Latency:
            if anew is None:
                raise OutOfTime
            return anew

        search.problem.confirm = measured  # type: ignore[method-assign]
        search.problem.cost = lambda graph, effort="screen": took  # type: ignore[method-assign]
        with ending_at(time.monotonic() + 30.0):
            return confirmed(search, graph, first)

    def test_a_graph_that_is_alone_was_not_chosen_for_its_luck(self, search: Search) -> None:
        first, anew = TestPooled.latency(1.03, 0.04), TestPooled.latency(1.05, 0.005)
        graph = self.visited(search, first, 1)
        assert self.confirm(search, graph, first, anew) == pooled(first, anew)

    def test_one_of_several_counts_less_and_only_where_a_doubt_is_left(self, search: Search) -> None:
        first, sure, doubtful = (TestPooled.latency(1.04, half) for half in (0.02, 0.01, 0.04))
        graph = self.visited(search, first, 2)
        assert self.confirm(search, graph, first, sure) == sure
        found = self.confirm(search, graph, first, doubtful)
        assert found == pooled(simultaneous(first, 2), doubtful)
        assert found.lower_bound < pooled(first, doubtful).lower_bound

    @pytest.mark.parametrize(("half", "took", "again"), [(0.1, 30.0, False), (0.1, 20.0, True), (0.25, 30.0, True)])
    def test_what_is_sure_is_not_measured_again_without_the_time(
        self, search: Search, half: float, took: float, again: bool
    ) -> None:
        first, anew = TestPooled.latency(1.2, half), TestPooled.latency(1.2, 0.01)
        graph = self.visited(search, first, 1)
        assert self.confirm(search, graph, first, anew, took) == (pooled(first, anew) if again else first)

    @pytest.mark.parametrize(("slower", "again"), [(1.0, True), (125.0, True), (140.0, False)])
    def test_what_is_sure_is_not_measured_again_where_few_runs_fit(
        self, search: Search, slower: float, again: bool
    ) -> None:
        fast, anew = TestPooled.latency(1.2, 0.1), TestPooled.latency(1.2, 0.01)
        first = replace(fast, ms=slower * fast.ms, baseline_ms=slower * fast.baseline_ms)
        graph = self.visited(search, first, 1)
        found = self.confirm(search, graph, first, anew, 2.0)
        assert found == (pooled(first, anew) if again else first)

    def test_what_is_sure_stands_where_no_measurement_ends_in_time(self, search: Search) -> None:
        first = TestPooled.latency(1.2, 0.1)
        graph = self.visited(search, first, 2)
        assert self.confirm(search, graph, first, None) == simultaneous(first, 2)
        with pytest.raises(OutOfTime):
            self.confirm(search, graph, TestPooled.latency(1.2, 0.17), None)  # sure by itself, not as one of two

    def test_intervals_hold_for_all_graphs_at_once(self) -> None:
        rng, count = np.random.default_rng(0), 8
        held = 0
        for _ in range(400):
            found = [TestPooled.latency(math.exp(rng.normal(0.0, 0.02 / 1.96)), 0.02) for _ in range(count)]
            luckiest = simultaneous(max(found, key=lambda latency: latency.speedup), count)
            held += luckiest.lower_bound <= 1.0
        assert held >= 0.95 * 400
        assert simultaneous(found[0], 1) == found[0]
        failed = Latency.failed("crash", "signal 11")
        assert simultaneous(failed, 3) is failed


def test_a_conclusion_has_what_the_search_leaves_over(tmp_path: Path) -> None:
    search = Search(chain_problem(tmp_path), Budget(seconds=42.0, conclusion_s=18.0, overtime_s=18.0))
    left = []
    for search.original_s, spent in ((0.1, 10.0), (10.0, 41.0), (0.1, 60.0)):
        search.charge(spent, spent - search.elapsed, 0.0)
        with _limited(search):
            left.append(round(seconds_left()))
    # A slow model's conclusion has 30 s in any case: its own, and those that it lacks.
    assert left == [50, 30, 18]


def test_a_slow_model_s_conclusion_has_more_of_the_budget(tmp_path: Path) -> None:
    fixed = {"seconds": 42.0, "conclusion_s": 18.0}
    search = Search(chain_problem(tmp_path), Budget(**fixed))
    allowed = []
    for search.original_s in (0.0, 0.01, 0.3, 10.0):
        allowed.append(search.allowed)
    assert allowed == [42.0, 42.0, 36.0, 30.0]
    for budget in (Budget(seconds=42.0), Budget(**fixed, provisional=True)):
        other = Search(search.problem, budget)
        other.original_s = 10.0
        assert other.allowed == 42.0
