"""The measurement of a draft, as it is and finished, and of the original, swept, beside it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from agents.core.base import Budget, Search, action_of
from agents.core.records import supposed
from agents.regional.agent import RegionalAgent
from agents.regional.assembly import AssembledGraph, best_of
from agents.regional.beginning.proved_drafts import ProvedDrafts
from agents.regional.drafting import MeasuredDraft
from agents.regional.finishing import Finishing
from agents.regional.gains import Effects
from agents.regional.options import RegionalOptions
from agents.regional.screen import Screen
from graph_rewrite import Graph, Rewriter
from graph_rewrite.experience import ExperienceLog
from graph_rewrite.rewriting.candidates import Candidate
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.rewriting.sites import Site
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.site_windows import site_classes
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with, chain, packed_layers, watched_rounds
from tests.agents.regional.test_drafting import CHAIN, GAINING, OfLarge, Told, two_kinds
from tests.agents.regional.test_finishing import LAID_OUT
from tests.agents.regional.test_joint_rewrites import (
    MS,
    ReluAsThresholdedInOtherLayout,
    ReluInOtherLayout,
    TransposeAfterTanh,
    TransposesCancel,
    cost,
    relus,
    started,
)
from tests.agents.toys import RULES, ThresholdedAsRelu, chain_problem


class ReluAsLeakyRelu(Rule):
    """Relu(x) = LeakyRelu(x, alpha=0), which gains by itself"""

    family = "toy_alone"

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.LeakyRelu(x, alpha=0.0)


MUCH, LITTLE = 0.3, 0.01
DRAFTED = ["Transpose", "LeakyRelu", "Transpose", *["Relu"] * 3]


@pytest.fixture
def problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Problem:
    """Four Relus in a row, which a rule that finishes drafts takes in."""
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
    return relus(tmp_path, ReluInOtherLayout(), ReluAsThresholdedInOtherLayout(), TransposesCancel())


def candidate(problem: Problem, rule: type, sites: int) -> Candidate:
    offered = problem.rewriter.candidates(problem.model.graph)
    return next(one for one in offered if one.rule == rule.__name__ and one.count == sites)


def measured(problem: Problem, gain: float, cost_s: float = 0.0) -> tuple[MeasuredDraft, list[list[str]]]:
    """Measure a draft of one Relu, forecast to gain so much. Return it, and the operators of what was measured, in
    order; a measurement takes `cost_s` of 60 seconds."""
    problem.cost = lambda graph, effort="screen": cost_s  # type: ignore[method-assign]
    search = Search(problem, Budget(50, 60.0))
    one = candidate(problem, ReluInOtherLayout, 1)
    draft = Finishing(search, 500).measured_draft(
        AssembledGraph(one.apply(), (action_of(one),), (chain(gain, {1}),)), 1.0
    )
    return draft, [[node.op for node in visit.graph.order()] for visit in search.visits.values() if visit.actions]


def test_one_that_is_to_gain_much_is_measured_finished_first(problem: Problem) -> None:
    draft, graphs = measured(problem, MUCH)
    assert graphs == [LAID_OUT, DRAFTED]
    assert not draft.is_last


def test_what_was_forecast_is_kept_with_what_was_measured(problem: Problem) -> None:
    search = Search(problem, Budget(50, 60.0))
    one = candidate(problem, ReluInOtherLayout, 1)
    draft = AssembledGraph(one.apply(), (action_of(one),), (chain(MUCH, {1}),))
    Finishing(search, 500).measured_draft(draft, 2.0)
    assert {visit.forecast for visit in search.visits.values() if visit.actions} == {MUCH / 2.0}
    assert {visit.forecast for visit in search.visits.values() if not visit.actions} == {0.0}


def test_one_that_is_to_gain_little_is_finished_where_it_gains(
    problem: Problem, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft, graphs = measured(problem, LITTLE)
    assert graphs == [DRAFTED]
    assert cost(problem.model.graph) < cost(candidate(problem, ReluInOtherLayout, 1).apply())
    assert not draft.chains
    monkeypatch.setitem(MS, "Transpose", 1.0)
    problem._memo.clear()
    draft, graphs = measured(problem, LITTLE)
    assert graphs == [DRAFTED, LAID_OUT]
    assert draft.chains


@pytest.mark.parametrize(("gain", "first"), [(MUCH, LAID_OUT), (LITTLE, DRAFTED)])
def test_where_no_other_measurement_fits_the_first_is_the_last(problem: Problem, gain: float, first: list[str]) -> None:
    draft, graphs = measured(problem, gain, cost_s=40.0)
    assert graphs == [first]
    assert draft.is_last


def test_its_chains_save_where_either_form_is_faster(problem: Problem) -> None:
    """As it is, it takes longer than the original. What it saves is scaled to what the original takes."""
    draft, _ = measured(problem, MUCH)
    (scaled,) = draft.chains
    assert scaled.saved == pytest.approx(MUCH * cost(problem.model.graph) / 1e3)


@pytest.mark.parametrize("carried_by", [(), ("TransposeAfterTanh",)])
def test_finishing_carries_a_rule_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried_by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "covers_parts", True)
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", carried_by)
    search = started(relus(tmp_path, ReluInOtherLayout(), TransposeAfterTanh(), last="Tanh"))
    made = Finishing(search, 500).finish(search.best)
    assert made is not None
    assert [node.op for node in made.graph.order()][-2:] == (
        ["Tanh", "Transpose"] if carried_by else ["Transpose", "Tanh"]
    )


@pytest.mark.parametrize("wrong", [True, False])
def test_of_a_draft_that_keeps_little_of_its_promise_what_surely_saves_is_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: bool
) -> None:
    problem = two_kinds(tmp_path)
    taking_back = ThresholdedAsRelu.__name__
    problem.rewriter = Rewriter([one for one in RULES if one.name != taking_back], "site", deployment=False)
    watched_rounds(monkeypatch)
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: (OfLarge if wrong else Told)(GAINING)
    search = Search(problem, BUDGET)
    agent.explore(search)
    drafted = [visit for visit in search.visits.values() if visit.actions]
    assert len(drafted) == (2 if wrong else 1)
    if wrong:
        both, alone = drafted
        assert alone.latency.speedup > both.latency.speedup
        assert len(alone.actions) < len(both.actions)
        assert [action.rule for action in alone.actions] == list(CHAIN)


@pytest.mark.parametrize(("half", "sure"), [(0.0, [" > ".join(CHAIN)]), (1.0, [])])
def test_chains_of_a_draft_surely_save_by_their_timings_alone(tmp_path: Path, half: float, sure: list[str]) -> None:
    """One of the two chains costs time."""
    problem, timer = two_kinds(tmp_path), ExactTimer(half)
    search, start = Search(problem, BUDGET), supposed(problem.model.graph, 7.0)
    drafts = ProvedDrafts(search, timer, OfLarge(GAINING), RegionalOptions(margin=1), ExperienceLog(None))
    draft = drafts.draft(start)
    assert draft is not None
    assert {str(one) for one in draft.chains} == {" > ".join(CHAIN), CHAIN[0]}
    timer.asked.clear()
    assert [str(one) for one in drafts.surely_save(start, draft, lambda: False)] == sure
    assert len(timer.asked) == 2
    assert drafts.surely_save(start, draft, lambda: True) == []


@pytest.mark.parametrize("small", [True, False])
def test_where_a_draft_of_a_small_model_gains_the_original_is_swept_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    problem = relus(tmp_path, ReluInOtherLayout(), TransposesCancel(), ReluAsLeakyRelu())
    begun = list[tuple[list[str], int]]()

    def draft(agent: RegionalAgent, search: Search, *others: Any) -> MeasuredDraft:
        search.measure(candidate(problem, ReluAsLeakyRelu, 1).apply(), ())
        return MeasuredDraft([chain(0.01, {1})], False)

    def of_round(agent: RegionalAgent, search: Search, *others: Any) -> bool:
        assert search.best is not None
        begun.append(([node.op for node in search.best.graph.order()], len(others[4])))
        return False

    monkeypatch.setattr(RegionalAgent, "_draft", draft)
    monkeypatch.setattr(RegionalAgent, "_round", of_round)
    monkeypatch.setattr("agents.regional.agent.is_small", lambda *_: small)
    agent_with(ExactTimer()).explore(Search(problem, BUDGET))
    operators, drafted = begun[0]
    assert operators == (["Transpose", *["LeakyRelu"] * 4, "Transpose"] if small else ["LeakyRelu", *["Relu"] * 3])
    assert drafted == (0 if small else 1)


def proved(problem: Problem, told: Told, half: float = 0.0, **options: float) -> tuple[list[str], int]:
    """Return the rules of a draft, and the windows that were timed for it, within `half` seconds."""
    timer, search = ExactTimer(half), Search(problem, BUDGET)
    settings = RegionalOptions(margin=1, **options)  # type: ignore[arg-type]
    drafts = ProvedDrafts(search, timer, told, settings, ExperienceLog(None))
    draft = drafts.draft(supposed(problem.model.graph, 7.0))
    return [] if draft is None else [action.rule for action in draft.actions], len(timer.asked)


def test_doubtful_chains_are_timed_and_left_out_where_they_save_nothing(tmp_path: Path) -> None:
    """The first step alone costs time, the chain of all three saves some."""
    problem = chain_problem(tmp_path, 1)
    little = {CHAIN[:1]: 0.03}
    assert proved(problem, Told(little)) == ([], 1)
    assert proved(problem, Told(dict.fromkeys(GAINING, 0.015), deviation=0.0)) == (list(CHAIN), 1)
    assert proved(problem, Told({CHAIN[:1]: 0.2})) == ([CHAIN[0]], 0)
    assert proved(problem, Told(little), doubting_share=0.0) == ([CHAIN[0]], 0)


@pytest.mark.parametrize("half", [0.0, 1e-4, 1e-2, math.inf])
def test_a_timing_that_tells_little_leaves_the_forecast_its_say(tmp_path: Path, half: float) -> None:
    """The step costs 1 ms of 7 ms, and is forecast to save 0.2 ms. It is timed once more."""
    kept = ([CHAIN[0]], 2) if half > 1e-3 else ([], 1)
    assert proved(chain_problem(tmp_path, 1), Told({CHAIN[:1]: 0.03}), half) == kept


def test_what_a_draft_makes_possible_is_drafted_behind_it(tmp_path: Path) -> None:
    """The steps behind the first one are forecast by themselves, not as its continuation."""
    problem = chain_problem(tmp_path, 1)
    behind = {CHAIN[:1]: 0.2, CHAIN[1:2]: 0.1, CHAIN[1:]: 0.1}
    assert proved(problem, Told(behind)) == (list(CHAIN), 1)
    assert proved(problem, Told(behind), drafting_share=0.0) == ([CHAIN[0]], 0)


@pytest.mark.parametrize(("seconds", "again"), [(1.0, True), (40.0, False)])
def test_nothing_is_drafted_behind_what_would_take_long_to_match(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, again: bool
) -> None:
    """Rules are matched with the first graph in so many of 100 seconds."""
    problem, now = chain_problem(tmp_path, 1), [0.0]
    list_sites = problem.rewriter.sites

    def listed(graph: Graph) -> list[Site]:
        now[0] = seconds
        return list_sites(graph)

    monkeypatch.setattr(problem.rewriter, "sites", listed)
    monkeypatch.setattr(Search, "seconds", property(lambda search: now[0]))
    search, behind = Search(problem, Budget(50, 100.0)), {CHAIN[:1]: 0.2, CHAIN[1:2]: 0.1, CHAIN[1:]: 0.1}
    drafts = ProvedDrafts(search, ExactTimer(), Told(behind), RegionalOptions(margin=1), ExperienceLog(None))
    draft = drafts.draft(supposed(problem.model.graph, 7.0))
    assert draft is not None
    assert [action.rule for action in draft.actions] == (list(CHAIN) if again else [CHAIN[0]])


def test_a_draft_takes_what_follows_a_step_whatever_the_depth(tmp_path: Path) -> None:
    problem = packed_layers(tmp_path)
    rules = ("HeadsOfGathers", "SeparateThreeMatMuls", "FuseUnscaledAttention", "PackAttention")
    told = Told({rules[:length]: 0.05 for length in range(1, len(rules) + 1)})
    graph, timer = problem.model.graph, ExactTimer()
    options = RegionalOptions(depth=1)
    screen = Screen(Search(problem, BUDGET), timer, Effects(), graph, 0.007, options, None, told)
    chains = best_of(screen.forecast(site_classes(problem.rewriter, graph), lambda: False))
    assert [str(chain) for chain in chains] == [" > ".join(rules)]
    assert not timer.asked
