"""Rewrites that pay only together: each alone loses, all of them gain once what lies between them has cancelled."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from onnx import helper

from agents.core.base import Budget, Search
from agents.regional.agent import RegionalAgent
from agents.regional.gains import Effects
from agents.regional.joint_rewrites import is_small, sweep, sweep_is_short, tidy
from agents.regional.options import RegionalOptions
from graph_rewrite import Rewriter
from graph_rewrite.ir.graph import Graph
from graph_rewrite.rewriting.rule import Rule
from graph_rewrite.task.problem import Problem
from graph_rewrite.task.replay import replay
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with, watched_rounds
from tests.agents.regional.test_drafting import Told
from tests.agents.toys import ExactMeter, LeakyAsClip, problem_on
from tests.envs.fakes import _write

MS = {"Relu": 5.0, "LeakyRelu": 2.0, "ThresholdedRelu": 1.0, "Transpose": 2.5, "Tanh": 1.0}


class ReluInOtherLayout(Rule):
    """Relu(x) = Transpose(LeakyRelu(Transpose(x), alpha=0))"""

    family = "toy_layout"

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Transpose(op.LeakyRelu(op.Transpose(x, perm=(1, 0)), alpha=0.0), perm=(1, 0))


class ReluAsThresholdedInOtherLayout(Rule):
    """Relu(x) = Transpose(ThresholdedRelu(Transpose(x), alpha=0))"""

    family = "toy_layout"

    def source(self, op: Any, x: Any) -> Any:
        return op.Relu(x)

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Transpose(op.ThresholdedRelu(op.Transpose(x, perm=(1, 0)), alpha=0.0), perm=(1, 0))


class TransposesCancel(Rule):
    """Transpose(Transpose(x)) = x"""

    family = "toy_elimination"

    def source(self, op: Any, x: Any) -> Any:
        return op.Transpose(op.Transpose(x, perm=op.attr("p")), perm=op.attr("q"))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return x


class TransposeAfterTanh(Rule):
    """Tanh(Transpose(x)) = Transpose(Tanh(x))"""

    family = "toy_layout"

    def source(self, op: Any, x: Any) -> Any:
        return op.Tanh(op.Transpose(x, perm=op.attr("p")))

    def target(self, op: Any, m: Any, x: Any) -> Any:
        return op.Transpose(op.Tanh(x), perm=m.attr("p"))


def cost(graph: Graph) -> float:
    return 1.0 + sum(MS[node.op] for node in graph.nodes.values())


def relus(folder: Path, *rules: Rule, last: str = "Relu") -> Problem:
    """Four Relus in a row, or three and another operator."""
    names = ["x", "a", "b", "c", "y"]
    nodes = [helper.make_node(last if y == "y" else "Relu", [x], [y], f"relu_{y}") for x, y in pairwise(names)]
    path = _write(folder / "relus.onnx", nodes, [], (2, 3), "y")
    return problem_on(path, folder, Rewriter(rules, granularity="both", deployment=False), cost=cost)


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    """Four Relus in a row, and one rule for them."""
    return relus(tmp_path, ReluInOtherLayout(), TransposesCancel())


def started(problem: Problem, **budget: Any) -> Search:
    search = Search(problem, Budget(**{"measurements": 50, "seconds": 60.0, **budget}))
    search.measure(problem.model.graph, ())
    return search


def test_a_rule_everywhere_gains_where_one_site_loses(problem: Problem) -> None:
    search = started(problem)
    start = search.best
    assert start is not None
    alone = problem.rewriter.candidates(start.graph)[-1]
    assert alone.count == 1
    assert cost(alone.apply()) > cost(start.graph)
    found = sweep(search, start, Effects(), RegionalOptions(), lambda: False)
    assert found is not None
    assert [node.op for node in found.graph.order()] == ["Transpose", *["LeakyRelu"] * 4, "Transpose"]
    assert cost(found.graph) == 14.0 < cost(start.graph)
    assert replay(problem, [action.key for action in found.actions]).hash == found.graph.hash
    # From there on nothing more.
    assert sweep(search, found, Effects(), RegionalOptions(), lambda: False) is None
    # No other rule carries it on.
    assert sweep(search, start, Effects(), RegionalOptions(), lambda: False, carried_only=True) is None


def test_of_several_rules_the_one_that_gains_most_is_taken(tmp_path: Path) -> None:
    search = started(relus(tmp_path, ReluInOtherLayout(), ReluAsThresholdedInOtherLayout(), TransposesCancel()))
    assert search.best is not None
    found = sweep(search, search.best, Effects(), RegionalOptions(), lambda: False)
    assert found is not None
    assert [node.op for node in found.graph.order()] == ["Transpose", *["ThresholdedRelu"] * 4, "Transpose"]


def test_a_rule_that_lost_too_much_alone_is_not_tried(problem: Problem) -> None:
    search, effects = started(problem), Effects()
    effects.record([("ReluInOtherLayout",)], -0.9)
    assert search.best is not None
    assert sweep(search, search.best, effects, RegionalOptions(), lambda: False) is None
    assert search.measurements == 1


@pytest.mark.parametrize("stop", ["budget", "until"])
def test_it_stops_when_told(problem: Problem, stop: str) -> None:
    search = started(problem, measurements=1 if stop == "budget" else 50)
    assert search.best is not None
    assert sweep(search, search.best, Effects(), RegionalOptions(), lambda: stop == "until") is None
    assert search.measurements == 1


@pytest.mark.parametrize(("cost_s", "expected"), [(2.0, True), (50.0, False)])
def test_a_sweep_is_short_where_its_rules_are_measured_fast(problem: Problem, cost_s: float, expected: bool) -> None:
    """One rule has several sites; 42 of 60 s are for the sweep."""
    search = started(problem)
    problem.cost = lambda graph, effort="screen": cost_s  # type: ignore[method-assign]
    graph = problem.model.graph
    assert sweep_is_short(search, graph, Effects(), RegionalOptions()) == expected
    search.end()
    assert not sweep_is_short(search, graph, Effects(), RegionalOptions())


@pytest.mark.parametrize(("cost_s", "expected"), [(1.1, True), (1.3, False)])
def test_a_graph_that_was_timed_beside_another_says_nothing_of_costs(
    problem: Problem, cost_s: float, expected: bool
) -> None:
    """60 s hold 50 measurements of 1.1 s each."""
    search = started(problem)
    other = problem.rewriter.candidates(problem.model.graph)[0].apply()
    search.measure(other, ())
    costs = {problem.model.graph.hash: 0.0, other.hash: cost_s}
    problem.cost = lambda graph, effort="screen": costs[graph.hash]  # type: ignore[method-assign]
    assert is_small(search, RegionalOptions()) == expected
    costs[other.hash] = 50.0
    assert not sweep_is_short(search, problem.model.graph, Effects(), RegionalOptions())


@pytest.mark.parametrize("is_short", [True, False])
def test_a_short_sweep_comes_before_the_first_round(
    problem: Problem, monkeypatch: pytest.MonkeyPatch, is_short: bool
) -> None:
    begun = watched_rounds(monkeypatch)
    monkeypatch.setattr("agents.regional.agent.sweep_is_short", lambda *_: is_short)
    agent_with(ExactTimer()).explore(Search(problem, BUDGET))
    swept = ["Transpose", *["LeakyRelu"] * 4, "Transpose"]
    assert begun[0] == (swept if is_short else ["Relu"] * 4)


def test_tidy_leaves_alone_what_was_there_before(problem: Problem) -> None:
    search = started(problem)
    graph = problem.model.graph
    after = next(c for c in problem.rewriter.candidates(graph) if c.kind == "class").apply()
    tidied, actions = tidy(search, after, (), graph.next_id, 500)
    assert [node.op for node in tidied.order()].count("Transpose") == 2
    assert sum(action.count for action in actions) >= 1
    same, none = tidy(search, after, (), after.next_id, 500)
    assert same is after
    assert none == ()


def with_tanhs_between(folder: Path, *others: Rule) -> Problem:
    """Four Relus in a row, with a Tanh between each two."""
    names = ["x", *"abcdef", "y"]
    ops = ["Relu", "Tanh"] * 3 + ["Relu"]
    nodes = [helper.make_node(op, [x], [y], f"node_{y}") for op, (x, y) in zip(ops, pairwise(names), strict=True)]
    path = _write(folder / "between.onnx", nodes, [], (2, 3), "y")
    rules = (ReluInOtherLayout(), TransposesCancel(), TransposeAfterTanh(), *others)
    return problem_on(path, folder, Rewriter(rules, granularity="both", deployment=False), cost=cost)


@pytest.mark.parametrize("carried_by", [(), ("TransposeAfterTanh",)])
def test_what_carries_a_rule_on_is_tried_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried_by: tuple[str, ...]
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", carried_by)
    problem = with_tanhs_between(tmp_path)
    search, effects = started(problem), Effects()
    effects.record([("ReluInOtherLayout",)], 0.0 if not carried_by else -0.9)
    assert search.best is not None
    found = sweep(search, search.best, effects, RegionalOptions(), lambda: False)
    if not carried_by:
        assert found is None
        return
    assert found is not None
    assert [node.op for node in found.graph.order()] == [
        "Transpose",
        *["LeakyRelu", "Tanh"] * 3,
        "LeakyRelu",
        "Transpose",
    ]
    assert replay(problem, [action.key for action in found.actions]).hash == found.graph.hash


def test_what_others_carry_on_is_measured_before_all_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rounds begin there where it gains, and nothing is drafted that no other model says anything of."""
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", ("TransposeAfterTanh", "TransposesCancel"))
    problem, begun = with_tanhs_between(tmp_path), list[str]()

    def of_round(agent: RegionalAgent, search: Search, *others: Any) -> bool:
        assert search.best is not None
        begun.append(search.best.graph.hash)
        return False

    monkeypatch.setattr(RegionalAgent, "_round", of_round)
    agent_with(ExactTimer()).explore(Search(problem, BUDGET))
    other = started(with_tanhs_between(tmp_path))
    assert other.best is not None
    joined = sweep(other, other.best, Effects(), RegionalOptions(), lambda: False, carried_only=True)
    assert joined is not None
    assert begun == [joined.graph.hash]
    assert isinstance(problem.meter, ExactMeter)
    assert problem.meter.measured[0] == joined.graph.hash
    assert problem.model.graph.hash not in problem.meter.measured


@pytest.mark.parametrize("known", [False, True])
def test_a_draft_begins_with_what_others_carry_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool) -> None:
    """With a known result to begin with, nothing is drafted."""
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", ("TransposeAfterTanh", "TransposesCancel"))
    monkeypatch.setitem(MS, "Clip", 1.0)
    monkeypatch.setattr("agents.regional.agent.measure_starts", lambda *_: None)
    problem, begun = with_tanhs_between(tmp_path, LeakyAsClip()), watched_rounds(monkeypatch)
    agent = agent_with(ExactTimer())
    agent.prior_for = lambda _: Told({(LeakyAsClip.__name__,): 0.3})
    agent.starts = [Mock()] if known else []
    search = Search(problem, BUDGET)
    agent.explore(search)
    operator = "LeakyRelu" if known else "Clip"
    assert begun == [["Transpose", *[operator, "Tanh"] * 3, operator, "Transpose"]]
    assert isinstance(problem.meter, ExactMeter)
    assert search.best is not None
    assert problem.meter.measured.index(search.best.graph.hash) == (0 if known else 1)


def test_what_others_carry_on_is_looked_for_without_all_other_rules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", ("TransposeAfterTanh", "TransposesCancel"))
    search = started(with_tanhs_between(tmp_path))
    monkeypatch.setattr(Rewriter, "sites", lambda rewriter, graph: pytest.fail("all rules are matched"))
    assert search.best is not None
    found = sweep(search, search.best, Effects(), RegionalOptions(), lambda: False, carried_only=True)
    assert found is not None
    assert [node.op for node in found.graph.order()].count("Transpose") == 2


def test_without_time_to_measure_it_what_others_carry_on_is_left_to_the_conclusion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ReluInOtherLayout, "carried_by", ("TransposeAfterTanh", "TransposesCancel"))
    monkeypatch.setattr("agents.regional.joint_rewrites.lacks_time", lambda search, graph: not search.visits)
    monkeypatch.setattr(RegionalAgent, "_draft", lambda *_: pytest.fail("a draft follows"))
    problem = with_tanhs_between(tmp_path)
    search = Search(problem, BUDGET)
    agent_with(ExactTimer()).explore(search)
    other = started(with_tanhs_between(tmp_path))
    assert other.best is not None
    joined = sweep(other, other.best, Effects(), RegionalOptions(), lambda: False, carried_only=True)
    assert joined is not None
    assert search.proposed is not None
    assert search.proposed.graph.hash == joined.graph.hash
    assert (search.measurements, problem.meter.measurements) == (0, 0)
