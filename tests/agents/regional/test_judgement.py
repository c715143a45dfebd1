"""Chains that are taken out again: in the time that there is for it, and not in that of what follows."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from agents.core.base import Budget, Search
from agents.regional.assembly import AssembledGraph, assemble, best_of
from agents.regional.finishing import Finishing
from agents.regional.gains import Effects
from agents.regional.judgement import judging_seconds, refine, visit_of
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Rewriter
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.regional.test_drafting import GAINING, Told, two_kinds
from tests.agents.regional.test_known_savings import NoRelu, ReluAsClip
from tests.agents.toys import chain_problem

OPTIONS = RegionalOptions(margin=1)


@pytest.fixture
def world(tmp_path: Path) -> SimpleNamespace:
    """A search that has put together two chains, and a timer that takes time off its budget."""
    problem = two_kinds(tmp_path)
    search, graph = Search(problem, BUDGET), problem.model.graph
    search.measure(graph, ())
    start = search.visits[graph.hash]
    screen = Screen(search, ExactTimer(), Effects(), graph, 0.011, OPTIONS, None, Told(GAINING))
    chains = best_of(screen.forecast(site_classes(problem.rewriter, graph, margin=1), lambda: False))
    assembly = assemble(search, graph, (), chains, OPTIONS)
    assert len(assembly.chains) == 2
    visit_of(search, assembly)
    return SimpleNamespace(search=search, start=start, assembly=assembly, timer=Slow())


class Slow(ExactTimer):
    """Times whole models, in seconds that the search has to pay for."""

    seconds: float = 0.0

    def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
        timed = ExactTimer.time(self, cut)
        return Difference(timed.seconds, timed.ci95, cut.count, 1, 1, timed.window_seconds, cost_s=self.seconds)


def compared(world: SimpleNamespace, measuring_s: float, seconds: float, kept_s: float = 0.0) -> int:
    """Return how many chains are taken out, where measuring a graph takes so long, and comparing two."""
    world.search.problem.cost = lambda graph, effort="screen": measuring_s
    world.timer.seconds = seconds
    refine(world.search, world.timer, world.start, world.assembly, OPTIONS, kept_s)
    return len(world.timer.asked)


def test_all_are_taken_out_where_there_is_time(world: SimpleNamespace) -> None:
    assert compared(world, 1.0, 1.0) == 2


def test_none_where_one_comparison_is_likely_to_take_longer(world: SimpleNamespace) -> None:
    """12 of 60 seconds are for all of them."""
    assert compared(world, 7.0, 1.0) == 0


def test_the_next_one_is_expected_to_take_as_long_as_the_last(world: SimpleNamespace) -> None:
    assert compared(world, 1.0, 7.0) == 1


def test_what_follows_has_its_time(world: SimpleNamespace) -> None:
    assert compared(world, 1.0, 2.0, kept_s=57.5) == 1
    assert compared(world, 1.0, 2.0, kept_s=60.0) == 1


def test_one_that_costs_time_end_to_end_stays_out(world: SimpleNamespace) -> None:
    search, (first, second) = world.search, world.assembly.chains

    class Sure(Slow):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            slower = not self.asked
            self.asked.append(cut)
            return Difference(1.0 if slower else -1.0, (0.5, 1.5) if slower else (-1.5, -0.5), 1, 1, 1, 2.0)

    search.problem.cost = lambda graph, effort="screen": 0.0
    refine(search, Sure(), world.start, world.assembly, OPTIONS)
    kept = min((first, second), key=lambda chain: -chain.lower_bound)
    alone: AssembledGraph = assemble(search, world.start.graph, (), [kept], OPTIONS)
    assert alone.graph.hash in search.visits


def test_a_round_leaves_time_to_measure_what_it_finds(tmp_path: Path) -> None:
    """A window takes 15 of 100 seconds, a measurement 30."""
    problem = chain_problem(tmp_path, 4)
    problem.rewriter = Rewriter((ReluAsClip(), NoRelu()), deployment=False)
    problem.cost = lambda graph, effort="screen": 30.0  # type: ignore[method-assign]
    search = Search(problem, Budget(measurements=200, seconds=100.0))
    search.measure(problem.model.graph, ())
    assert judging_seconds(search) == 60.0  # the original is compared with nothing
    timer = Slow()
    timer.seconds = 15.0
    agent = agent_with(timer, margin=1)
    agent._round(search, timer, timer, Effects(), set(), (), Finishing(search, OPTIONS.most_sites))
    assert (len(timer.asked), len(search.visits)) == (1, 2)
    assert search.seconds <= search.allowed
