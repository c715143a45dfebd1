"""Savings of each rewrite, against costs that are known exactly."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.conclusion.savings import Saving, measured_path, saved_ms, savings
from agents.core.base import Action, Budget, OptimizationResult, Search, Visit
from agents.core.registry import make_agent
from graph_rewrite.latency import Latency
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with
from tests.agents.toys import chain_problem

NOTHING: Any = None


def _result(
    path: dict[int, float], windows: list[float | None], speedup: float = 2.0, ms: float = 10.0
) -> OptimizationResult:
    actions = tuple(Action(f"k{i}", "R", "R", 1, seconds) for i, seconds in enumerate(windows))
    latency = Latency(ms, speedup, (speedup, speedup), 1, ms * speedup)
    return OptimizationResult(
        "a", NOTHING, latency, actions, NOTHING, (), 0, 0, 0.0, path=tuple(sorted(path.items()))
    )  # fmt: skip


def test_a_climb_that_measured_every_step_knows_what_each_saves(tmp_path: Path) -> None:
    """A beam crosses the valley: the steps cost 1 ms, cost 1 ms, and save 6 ms."""
    result = make_agent("greedy:beam=4,depth=3").optimize(chain_problem(tmp_path, 1), Budget(200, 60.0))
    assert [action.rule for action in result.actions] == ["ReluAsThresholded", "ThresholdedAsLeaky", "LeakyAsClip"]
    assert saved_ms(result) == pytest.approx([-1.0, -1.0, 6.0])


@pytest.mark.parametrize("sites", [1, 3])
def test_windows_divide_what_a_chain_saves_among_its_steps(tmp_path: Path, sites: int) -> None:
    result = agent_with(ExactTimer()).optimize(chain_problem(tmp_path, sites, "class"), BUDGET)
    assert result.measurements == 2
    assert saved_ms(result) == pytest.approx([-1.0 * sites, -1.0 * sites, 6.0 * sites])
    assert {saving.source for saving in savings(result)} == {"windows"}


def test_windows_are_shares_and_the_measured_saving_is_divided() -> None:
    result = _result({0: 1.0, 2: 2.0}, [0.003, 0.001])
    assert saved_ms(result) == pytest.approx([7.5, 2.5])


def test_what_no_window_showed_is_left_together() -> None:
    found = savings(_result({0: 1.0, 3: 2.0}, [None, 0.004, None]))
    assert found == [Saving((1, 3), pytest.approx(6.0), "whole model"), Saving((2,), pytest.approx(4.0), "windows")]
    assert saved_ms(_result({0: 1.0, 3: 2.0}, [None, 0.004, None])) == [None, pytest.approx(4.0), None]


def test_a_span_of_several_steps_without_windows_is_one_saving() -> None:
    result = _result({0: 1.0, 2: 1.5, 3: 2.0}, [None, None, None])
    first, second = 20.0 * (1 - 1 / 1.5), 20.0 * (1 / 1.5 - 1 / 2)
    assert savings(result) == [
        Saving((1, 2), pytest.approx(first), "whole model"), Saving((3,), pytest.approx(second), "whole model"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "path", [{0: 1.0}, {}, {0: 1.0, 1: 0.9}], ids=["end unknown", "nothing known", "screened slower"]
)
def test_nothing_is_claimed_where_the_search_saw_no_saving(path: dict[int, float]) -> None:
    assert savings(_result(path, [None])) == []
    assert saved_ms(_result(path, [None])) == [None]


def test_an_original_that_is_kept_saves_nothing(tmp_path: Path) -> None:
    result = make_agent("greedy").optimize(chain_problem(tmp_path, 1), Budget(200, 60.0))
    assert result.is_original
    assert savings(result) == []


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_savings_cover_every_rewrite_once_and_add_up(data: st.DataObject) -> None:
    windows = data.draw(st.lists(st.none() | st.floats(-0.01, 0.01), min_size=1, max_size=6))
    between = data.draw(st.dictionaries(st.integers(1, len(windows)), st.floats(0.5, 3.0)))
    result = _result({**between, 0: 1.0, len(windows): data.draw(st.floats(1.01, 3.0))}, windows)
    found = savings(result)
    assert sorted(step for saving in found for step in saving.steps) == list(range(1, len(windows) + 1))
    assert sum(saving.ms for saving in found) == pytest.approx(10.0, abs=1e-6)


def test_only_graphs_on_the_way_are_points_of_it(tmp_path: Path) -> None:
    search = Search(chain_problem(tmp_path, 1), BUDGET)
    good, failed = Latency(1.0, 1.25, (1.2, 1.3), 1, 1.25), Latency.failed("error", "no")
    one, two, other = (Action(key, "R", "R", 1) for key in "abc")
    graph = search.problem.model.graph
    visits = [Visit(graph, good, ()), Visit(graph, failed, (one,)), Visit(graph, good, (other,))]
    visits += [Visit(graph, replace(good, speedup=1.5), (one, two)), Visit(graph, good, (one, two, other))]
    assert measured_path(visits, (one, two)) == ((0, 1.25), (2, 1.5))
