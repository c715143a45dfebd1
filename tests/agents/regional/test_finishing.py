"""Rules that cover parts of a model: tried on what was put together, and out of the way of the rounds that follow."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from agents.core.base import Search, action_of
from agents.regional.assembly import AssembledGraph
from agents.regional.finishing import Finishing
from graph_rewrite.ir.graph import Graph
from graph_rewrite.latency import Latency, Plan
from graph_rewrite.system.deadline import OutOfTime
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with, chain, watched_rounds
from tests.agents.regional.test_joint_rewrites import (
    MS,
    ReluAsThresholdedInOtherLayout,
    ReluInOtherLayout,
    TransposesCancel,
    cost,
    relus,
    started,
)

LAID_OUT = ["Transpose", *["LeakyRelu"] * 4, "Transpose"]


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Four Relus in a row: at one site the rule loses, and windows of one do not show what all gain."""
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
    return relus(tmp_path, ReluInOtherLayout(), TransposesCancel())


def test_a_rule_that_covers_parts_is_measured_at_all_its_sites(problem: Problem) -> None:
    search = started(problem)
    Finishing(search, 500).finish(search.best)
    best = search.best
    assert best is not None
    assert [node.op for node in best.graph.order()] == LAID_OUT
    assert best.latency.speedup > 1.0
    assert replay(problem, [action.key for action in best.actions]).hash == best.graph.hash


def test_rounds_begin_with_what_is_not_finished_until_none_gains(problem: Problem) -> None:
    search = started(problem)
    finishing, original = Finishing(search, 500), search.best
    finishing.finish(finishing.start)
    assert search.best is not original
    assert finishing.start is original
    assert finishing.goes_on_from_finished()
    assert finishing.start is search.best
    assert not finishing.goes_on_from_finished()


def test_a_graph_is_finished_once(problem: Problem) -> None:
    search = started(problem)
    finishing = Finishing(search, 500)
    finishing.finish(finishing.start)
    applied = search.applications
    finishing.finish(finishing.start)
    assert (search.measurements, search.applications) == (2, applied)


def test_other_rules_are_left_to_windows(tmp_path: Path) -> None:
    search = started(relus(tmp_path, ReluInOtherLayout(), TransposesCancel()))
    finishing, original = Finishing(search, 500), search.best
    finishing.finish(original)
    assert search.measurements == 1
    assert finishing.start is original
    assert not finishing.goes_on_from_finished()


def test_without_measurements_left_nothing_is_done(problem: Problem) -> None:
    search = started(problem, measurements=1)
    Finishing(search, 500).finish(search.best)
    assert (search.measurements, search.applications) == (1, 0)


def test_the_original_is_finished_before_the_first_round(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = watched_rounds(monkeypatch)
    agent_with(ExactTimer()).explore(Search(problem, BUDGET))
    assert begun[0] == LAID_OUT


def test_the_search_finds_what_only_a_finished_graph_gains(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agents.regional.agent.sweep", lambda *args, **options: None)
    search = Search(problem, BUDGET)
    agent_with(ExactTimer()).explore(search)
    assert search.best is not None
    assert [node.op for node in search.best.graph.order()] == LAID_OUT


class TestASmallLead:
    """A finished graph that seems to be little faster than the one it was made from."""

    TRUTH = 0.98

    def finished(self, problem: Problem, lead: float, truth: float = TRUTH, cost_s: float = 0.0) -> tuple[Search, int]:
        """Finish the original, which seems to gain `lead` by that, and in turn is `truth` times as fast. Return the
        search, and the number of comparisons. Measuring the finished graph takes `cost_s` of 60 seconds."""
        asked = list[float]()

        def compare(reference: Graph, candidate: Graph, plan: Plan | None = None) -> Latency:
            asked.append(truth)
            return Latency(1.0, truth, (truth - 0.01, truth + 0.01), 10, truth)

        problem.meter.compare = compare  # type: ignore[attr-defined]
        search = started(problem)
        finishing, ms = Finishing(search, 500), search.visits[problem.model.graph.hash].latency.ms
        graph, _ = finishing.applied(problem.model.graph, ())
        seen = Latency(ms / lead, lead, (lead - 0.005, lead + 0.02), 9, ms)
        problem._memo[graph.hash, "screen"] = seen
        problem.cost = lambda graph, effort="screen": cost_s  # type: ignore[method-assign]
        made = finishing.finish(search.best)
        assert made is not None
        assert search.visits[graph.hash].latency == made.latency
        return search, len(asked)

    @staticmethod
    def is_original(search: Search) -> bool:
        assert search.best is not None
        return search.best.graph is search.problem.model.graph

    @pytest.mark.parametrize(("truth", "original"), [(0.98, True), (1.02, False)])
    def test_a_comparison_in_turn_decides(self, problem: Problem, truth: float, original: bool) -> None:
        search, compared = self.finished(problem, 1.01, truth)
        assert (self.is_original(search), compared) == (original, 1)

    def test_without_the_time_for_it_the_other_graph_is_best(self, problem: Problem) -> None:
        search, compared = self.finished(problem, 1.01, cost_s=59.94)
        assert (self.is_original(search), compared) == (True, 0)

    def test_a_large_lead_needs_none(self, problem: Problem) -> None:
        search, compared = self.finished(problem, 1.06, cost_s=59.94)
        assert (self.is_original(search), compared) == (False, 0)

    def test_what_seems_slower_needs_none(self, problem: Problem) -> None:
        search, compared = self.finished(problem, 0.97)
        assert (self.is_original(search), compared) == (True, 0)


class TestLackOfTime:
    @pytest.fixture
    def draft(self, problem: Problem) -> AssembledGraph:
        return AssembledGraph(problem.model.graph, (), (chain(0.3, {1}),))

    def left(
        self, problem: Problem, draft: AssembledGraph, monkeypatch: pytest.MonkeyPatch, measurements: int
    ) -> Search | None:
        """Leave a draft to the end of a search with the time for so many measurements; None where it is not left."""
        monkeypatch.setattr(
            "agents.regional.finishing.lacks_time", lambda search, graph, gain, needed=1: needed > measurements
        )
        search = Search(problem, BUDGET)
        return search if Finishing(search, 500).is_left_to_the_end(draft, 1.0) else None

    def test_a_draft_that_gains_much_is_left_to_the_end_finished(
        self, problem: Problem, draft: AssembledGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        search = self.left(problem, draft, monkeypatch, 1)
        assert search is not None
        assert search.proposed is not None
        assert [node.op for node in search.proposed.graph.order()] == LAID_OUT
        assert search.proposed.gain == pytest.approx(0.3)
        assert (search.measurements, search.exhausted) == (0, True)
        keys = [action.key for action in search.proposed.actions]
        assert replay(problem, keys).hash == search.proposed.graph.hash

    def test_one_that_gains_little_is_left_as_it_is(
        self, problem: Problem, draft: AssembledGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        little = replace(draft, chains=(chain(0.01, {1}),))
        assert self.left(problem, little, monkeypatch, 1) is None
        search = self.left(problem, little, monkeypatch, 0)
        assert search is not None
        assert search.proposed is not None
        assert search.proposed.graph is draft.graph

    def test_one_that_no_rule_finishes_needs_one_measurement(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        problem = relus(tmp_path, TransposesCancel())
        draft = AssembledGraph(problem.model.graph, (), (chain(0.3, {1}),))
        assert self.left(problem, draft, monkeypatch, 1) is None
        assert self.left(problem, draft, monkeypatch, 0) is not None

    def test_with_time_for_both_it_is_measured(
        self, problem: Problem, draft: AssembledGraph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert self.left(problem, draft, monkeypatch, 2) is None


class TestTheOriginal:
    """Beside a draft that leaves nothing to the rule which covers the whole original."""

    @pytest.fixture
    def problem(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
        monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
        return relus(tmp_path, ReluInOtherLayout(), ReluAsThresholdedInOtherLayout(), TransposesCancel())

    def started(self, problem: Problem, speedup: float) -> tuple[Search, Finishing]:
        search = started(problem)
        offered = problem.rewriter.candidates(problem.model.graph)
        one = next(one for one in offered if (one.rule, one.count) == (ReluAsThresholdedInOtherLayout.__name__, 4))
        ms = cost(problem.model.graph)
        search.measure(one.apply(), (action_of(one),), Latency(ms / speedup, speedup, (speedup, speedup), 9, ms))
        finishing = Finishing(search, 500)
        finishing.finish(search.best)
        return search, finishing

    def test_where_it_leads_rounds_go_on_from_it(self, problem: Problem) -> None:
        search, finishing = self.started(problem, 1.05)
        assert finishing.original_leads()
        assert search.best is not None
        assert [node.op for node in search.best.graph.order()] == LAID_OUT
        assert finishing.start is search.best

    @pytest.mark.parametrize(("speedup", "leads"), [(1.06, True), (1.03, False)])
    def test_where_its_measurement_leaves_that_open_it_is_compared_with_the_draft(
        self, problem: Problem, speedup: float, leads: bool
    ) -> None:
        search, finishing = self.started(problem, 1.04)
        original, best = problem.model.graph, search.best
        assert best is not None
        finished = finishing.applied(original, ())[0]
        true = {original.hash: 1.0, best.graph.hash: 1.04, finished.hash: speedup}
        ms, asked = cost(original), list[tuple[str, str]]()
        problem._memo[finished.hash, "screen"] = Latency(ms / 1.03, 1.03, (0.97, 1.09), 9, ms)

        def compare(reference: Graph, other: Graph, plan: Plan | None = None) -> Latency:
            asked.append((reference.hash, other.hash))
            ratio = true[other.hash] / true[reference.hash]
            return Latency(1.0, ratio, (ratio * 0.98, ratio * 1.02), 10, ratio)

        problem.meter.compare = compare  # type: ignore[attr-defined]
        assert finishing.original_leads() == leads
        assert asked[-1] == (best.graph.hash, finished.hash)
        assert search.best is search.visits[finished.hash if leads else best.graph.hash]

    def test_without_the_time_to_compare_it_has_to_lead_clearly(self, problem: Problem) -> None:
        _, finishing = self.started(problem, 1.04)
        original = problem.model.graph
        finished, ms = finishing.applied(original, ())[0], cost(original)
        problem._memo[finished.hash, "screen"] = Latency(ms / 1.06, 1.06, (1.05, 1.07), 9, ms)

        def compare(reference: Graph, other: Graph, plan: Plan | None = None) -> Latency:
            raise OutOfTime

        problem.meter.compare = compare  # type: ignore[attr-defined]
        assert not finishing.original_leads()

    def test_beside_a_large_lead_it_is_left_as_it_is(self, problem: Problem) -> None:
        search, finishing = self.started(problem, 1.2)
        assert not finishing.original_leads()
        assert search.measurements == 2

    def test_where_it_is_slower_rounds_go_on_from_the_draft(
        self, problem: Problem, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(MS, "Transpose", 8.0)
        search, finishing = self.started(problem, 1.05)
        draft = search.best
        assert not finishing.original_leads()
        assert search.measurements == 3
        assert finishing.start is draft
