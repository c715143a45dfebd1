"""Parts that finishing takes in, small and alike: their windows tell whether it pays, before the model is measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents.core.base import Search
from agents.regional.assembly import AssembledGraph
from agents.regional.finishing import Finishing
from graph_rewrite import Rewriter
from graph_rewrite.latency.windows import Difference
from graph_rewrite.latency.windows.window import WindowPair
from graph_rewrite.task.problem import Problem
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, chain
from tests.agents.toys import WEIGHTS, ReluAsThresholded, ThresholdedAsRelu, chain_problem

MANY, FEW = 24, 4
"""Relus with Tanhs between them: the first and the others are two kinds of windows."""
COSTS_MS = 1.0
"""What each costs more as ThresholdedRelu."""


class InParts(ReluAsThresholded):
    """Relu(x) = ThresholdedRelu(x, alpha=0), wherever it is found"""

    covers_parts = True


def problem_of(folder: Path, sites: int) -> Problem:
    problem = chain_problem(folder, sites)
    problem.rewriter = Rewriter((InParts(), ThresholdedAsRelu()), "both", deployment=False)
    return problem


def finished(problem: Problem, timer: ExactTimer | None) -> list[str]:
    """Return the operators of what finishing the original measures; none where it measures nothing."""
    search = Search(problem, BUDGET)
    search.measure(problem.model.graph, ())
    made = Finishing(search, 500, timer=timer).finish(search.best)
    assert (made is not None) == (search.measurements == 2)
    return [] if made is None else [node.op for node in made.graph.order()]


LAID_OUT = ["ThresholdedRelu", "Tanh"] * MANY


@pytest.mark.parametrize("half_ms", [0.0, 2 * MANY * COSTS_MS])
def test_what_does_not_surely_pay_is_not_measured(tmp_path: Path, half_ms: float) -> None:
    timer = ExactTimer(half_ms / 1e3)
    assert finished(problem_of(tmp_path, MANY), timer) == []
    assert sum(pair.count for pair in timer.asked) == MANY
    assert len(timer.asked) == 2


@pytest.mark.parametrize(("half_ms", "is_sure"), [(0.0, True), (0.35, True), (0.36, False)])
def test_what_surely_pays_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_ms: float, is_sure: bool
) -> None:
    """The errors of two kinds of windows add up in squares: to more than what all sites save."""
    monkeypatch.setitem(WEIGHTS, "ThresholdedRelu", WEIGHTS["Relu"] - COSTS_MS / MANY)
    made = finished(problem_of(tmp_path, MANY), ExactTimer(half_ms / 1e3))
    assert made == (LAID_OUT if is_sure else [])


def test_parts_that_take_much_of_the_model_are_measured_end_to_end(tmp_path: Path) -> None:
    timer = ExactTimer()
    assert finished(problem_of(tmp_path, FEW), timer) == ["ThresholdedRelu", "Tanh"] * FEW
    assert not timer.asked


def test_parts_that_cannot_be_timed_are_measured_end_to_end(tmp_path: Path) -> None:
    class Failing(ExactTimer):
        def time(self, cut: WindowPair, budget_s: float | None = None, *, anew: bool = False) -> Difference:
            found = super().time(cut, budget_s, anew=anew)
            return Difference(0.0, found.ci95, status="error", message="hangs") if len(self.asked) == 2 else found

    assert finished(problem_of(tmp_path, MANY), Failing()) == LAID_OUT


@pytest.mark.parametrize(("timer", "operator"), [(None, "ThresholdedRelu"), (ExactTimer(), "Relu")])
def test_a_draft_is_left_to_the_conclusion_without_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timer: ExactTimer | None, operator: str
) -> None:
    monkeypatch.setattr("agents.regional.finishing.lacks_time", lambda *_: True)
    problem = problem_of(tmp_path, MANY)
    search = Search(problem, BUDGET)
    draft = AssembledGraph(problem.model.graph, (), (chain(0.3, {0}),))
    assert Finishing(search, 500, timer=timer).is_left_to_the_end(draft, 1.0)
    assert search.proposed is not None
    assert search.proposed.graph.order()[0].op == operator
