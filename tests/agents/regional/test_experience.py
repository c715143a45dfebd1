"""Searches log what they time, completely enough to be done again, and at little cost."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

from agents.core.base import Search
from agents.regional.agent import RegionalAgent
from agents.regional.options import RegionalOptions
from graph_rewrite.experience import ExperienceLog, ExperienceStore, graph_of
from graph_rewrite.replay import RecordedStep, Recording, fingerprint, replay
from tests.agents.regional.exact_timer import BUDGET, ExactTimer, agent_with, watched_rounds
from tests.agents.regional.logged import logged_search
from tests.agents.regional.test_drafting import CHAIN, GAINING, Told
from tests.agents.toys import chain_problem


@pytest.mark.parametrize("family", ["residual", "encoder"])
def test_what_is_logged_can_be_done_again(family: str, tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "x.sqlite3")
    log, timer, rewriter = logged_search(store, family, tmp_path)
    labels = list(store.labels())
    assert log.labels == len(timer.asked)
    assert 20 < len(labels) <= log.labels
    assert {len(label.steps) for label in labels} == {1, 2}
    assert {label.ok for label in labels} == {True, False}
    for label in labels:
        window = graph_of(label.window)
        assert fingerprint(window) == label.window["fingerprint"]
        steps = tuple(RecordedStep.from_json(step) for step in label.steps)
        again = replay(Recording(steps, label.window["fingerprint"]), window, rewriter)
        assert again.complete, again.first_difference
        assert all(step.exact for step in again.applied), label.rules
        assert label.family == family
        assert label.model["uri"] == f"generated/{family}/0"


def test_a_label_says_all_of_its_circumstances(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "x.sqlite3")
    logged_search(store, "encoder", tmp_path)
    label = next(label for label in store.labels() if label.ok)
    assert label.body["sites"] >= 1
    assert label.body["low_s"] < label.body["saved_s"] < label.body["high_s"]
    assert label.body["cost_s"] == 0.2
    assert 0.0 < label.body["part"] <= 1.0
    assert label.context["clock"] == "cpu"
    assert label.context["deployment"]["threads"] == 1
    assert label.context["deployment"]["disabled_optimizers"] == []
    assert set(label.context) >= {"device", "onnxruntime", "rewritegym", "commit"}
    assert label.plan["effort"] == "scan"
    assert all(0.0 <= position <= 1.0 for position in label.place["at"])
    assert len(label.place["given_by"]) == len(label.window["inputs"])
    assert len(label.place["read_by"]) == len(label.window["outputs"])
    assert str(tmp_path) not in json.dumps([label.model, label.place, label.window, label.steps])


def test_a_search_logs_every_window_that_it_times_and_finds_the_same(tmp_path: Path) -> None:
    """All timings but those of whole models, in the screen and when the best chains are timed again."""
    found = []
    for store in (None, ExperienceStore(tmp_path / "x.sqlite3")):
        problem, timer = chain_problem(tmp_path, 2), ExactTimer(half=1e-4)
        agent = agent_with(timer)
        agent.log = log = ExperienceLog(store)
        found.append(agent.optimize(problem, BUDGET).actions)
        whole = [cut for cut in timer.asked if cut.key == f"{cut.before.hash}:{cut.after.hash}"]
        assert log.labels == (0 if store is None else len(timer.asked) - len(whole))
    assert found[0] == found[1] != ()
    assert store is not None
    labels = list(store.labels())
    assert {label.plan["effort"] for label in labels} >= {"scan", "careful"}
    assert any(label.place["applied"] for label in labels) or len({label.place["nodes"] for label in labels}) == 1


def test_timings_of_a_draft_are_logged_once_the_original_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, timer = ExperienceStore(tmp_path / "x.sqlite3"), ExactTimer()
    watched_rounds(monkeypatch)
    agent, search = agent_with(timer), Search(chain_problem(tmp_path, 1), BUDGET)
    agent.log = log = ExperienceLog(store)
    agent.prior_for = lambda _: Told(dict.fromkeys(GAINING, 0.015), deviation=0.0)
    agent.explore(search)
    assert log.labels == len(timer.asked) == 1
    (label,) = store.labels()
    assert label.rules == CHAIN
    assert label.body["model_s"] == search.original_s > 0.0


def test_a_store_that_fails_changes_no_search(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    problem, timer = chain_problem(tmp_path, 2), ExactTimer()
    agent = agent_with(timer)
    expected = agent.optimize(problem, BUDGET).actions
    agent.log = ExperienceLog(ExperienceStore(tmp_path / "file" / "x.sqlite3"))
    with pytest.warns(RuntimeWarning, match="store of experience .* off for this run") as caught:
        found = agent.optimize(chain_problem(tmp_path, 2), BUDGET).actions
    assert found == expected
    assert len([one for one in caught if "store of experience" in str(one.message)]) == 1


def test_logging_is_off_where_the_user_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.sqlite3"
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", str(path))
    timer = ExactTimer()
    quiet = RegionalAgent(RegionalOptions(climb=False, experience=False, cache=False), timer=lambda _: timer)
    quiet.optimize(chain_problem(tmp_path, 1), BUDGET)
    assert not path.exists()
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent_with(timer).optimize(chain_problem(tmp_path, 1), BUDGET)
    assert not path.exists()
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", str(path))
    agent_with(timer).optimize(chain_problem(tmp_path, 1), BUDGET)
    assert list(ExperienceStore(path).labels())
