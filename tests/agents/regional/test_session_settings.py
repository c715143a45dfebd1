"""The agent `regional` and session settings: chosen after the graph, and part of its result."""

from pathlib import Path

import pytest

from graph_rewrite.rewriting import session_choices
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
