"""The agent `regional` and session settings: chosen after the graph, and part of its result."""

from dataclasses import replace
from pathlib import Path

import pytest

from agents.core.base import Search
from agents.searching.session_search import FLUSHING, start_under_settings
from graph_rewrite.rewriting import session_choices
from graph_rewrite.runtime import Deployment
from graph_rewrite.task.replay import replay
from tests.agents.planted_settings import FACTORS, planted
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with


def test_settings_are_chosen_after_the_graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_choices, "physical_cores", lambda: 1)
    result = agent_with(ExactTimer()).optimize(planted(tmp_path, FACTORS), BUDGET)
    assert dict(result.graph.session_settings) == {"enable_mem_pattern": False}
    rules = [action.rule for action in result.actions]
    assert rules[-1] == "set enable_mem_pattern=false"
    assert "ReluAsThresholded" in rules
    assert result.checked.deployment.to_json()["enable_mem_pattern"] is False


def test_none_are_chosen_without_seconds_for_them(tmp_path: Path) -> None:
    result = agent_with(ExactTimer(), session_share=0.0).optimize(planted(tmp_path, FACTORS), BUDGET)
    assert result.actions
    assert result.graph.session_settings == ()


def test_on_a_device_they_are_chosen_before_the_windows_too(tmp_path: Path) -> None:
    problem, timer = planted(tmp_path, {"enable_cuda_graph": 0.5}), ExactTimer()
    problem.deployment = Deployment("cuda")
    search = Search(problem, BUDGET)
    with search.running():
        agent_with(timer).explore(search)
    assert {cut.before.session_settings for cut in timer.asked} == {(("enable_cuda_graph", True),)}
    assert search.best is not None
    rules = [action.rule for action in search.best.actions]
    assert rules[0] == "set enable_cuda_graph=true"
    assert "ReluAsThresholded" in rules


class TestDenormals:
    """A graph that is known to compute with denormal numbers."""

    @pytest.fixture(autouse=True)
    def computes_denormals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("agents.searching.session_search.computes_denormals", lambda graph: True)

    def test_the_search_begins_without_them(self, tmp_path: Path) -> None:
        problem, timer = planted(tmp_path, {"set_denormal_as_zero": 0.7}), ExactTimer()
        search = Search(problem, BUDGET)
        with search.running():
            agent_with(timer, session_share=0.0).explore(search)
        assert {cut.before.session_settings for cut in timer.asked} == {(("set_denormal_as_zero", True),)}
        assert search.best is not None
        rules = [action.rule for action in search.best.actions]
        assert rules[0] == FLUSHING
        assert "ReluAsThresholded" in rules
        assert replay(problem, [action.key for action in search.best.actions]).hash == search.best.graph.hash

    def test_where_that_gains_nothing_the_result_keeps_them(self, tmp_path: Path) -> None:
        result = agent_with(ExactTimer()).optimize(planted(tmp_path, {"set_denormal_as_zero": 1.1}), BUDGET)
        assert "ReluAsThresholded" in [action.rule for action in result.actions]
        assert result.graph.session_settings == ()

    def test_one_measurement_is_enough_for_a_search(self, tmp_path: Path) -> None:
        search = Search(planted(tmp_path, {"set_denormal_as_zero": 0.7}), replace(BUDGET, measurements=1))
        with search.running():
            agent_with(ExactTimer()).explore(search)
        assert search.measurements == 1

    @pytest.mark.parametrize("kept", ["strict", "fixed deployment"])
    def test_where_they_are_to_be_kept_they_are(self, tmp_path: Path, kept: str) -> None:
        problem = planted(tmp_path, {"set_denormal_as_zero": 0.7})
        assert start_under_settings(Search(problem, BUDGET)).actions
        problem.strict = kept == "strict"
        problem.rewriter.deployment = kept == "strict"
        start = start_under_settings(Search(problem, BUDGET))
        assert (start.graph, start.actions) == (problem.model.graph, ())
