"""Drafts that are measured: the priors they are made by, and what is forecast of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents.effects.learning_means import MeansLearner
from agents.effects.prior import SHIPPED as MODEL
from agents.effects.step_means import Expectation, Forecast, StepMeans
from agents.effects.stored import PlainPredictor
from benchmarks.learning import drafts
from benchmarks.protocol.searches.held_out import family_of
from envs.window.table import SHIPPED, WindowTable
from tests.agents.forecasting import ForecastsByChain
from tests.agents.toys import chain_problem, costs_of_all, graph_cost


class Told(ForecastsByChain):
    """Knows that Relu is best as Clip."""

    def forecast(self, rules: Any, families: Any, shapes: str, guess: float, window: str = "") -> Forecast | None:
        means = {"ReluAsThresholded": (0.5, -0.1), "ThresholdedAsLeaky": (0.6, -0.1), "LeakyAsClip": (0.7, 0.7)}
        leads, own = means.get(rules[-1], (-0.5, -0.5))
        return Forecast(leads, 0.01, 9.0, Expectation(own, 0.01))


def test_a_draft_is_made_by_forecasts_alone(tmp_path: Path) -> None:
    problem = chain_problem(tmp_path, 2, "both")
    made = drafts.draft(problem, 0.013, Told())
    assert graph_cost(made.graph) == costs_of_all(2)[0]
    assert made.chains == 1
    assert made.forecast > 1.5


def test_priors_leave_out_the_family_of_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, tables = chain_problem(tmp_path, 1), [WindowTable.load(SHIPPED)]
    learners, asked = [MeansLearner(table) for table in tables], list[str | None]()

    def noting(family: str | None) -> PlainPredictor:
        asked.append(family)
        return PlainPredictor.load(MODEL)

    monkeypatch.setattr(drafts, "held_out_effects", noting)
    assert family_of(tables, "csrnet") == family_of(tables, "vgg19") == "vgg"
    assert family_of(tables, "densenet121") is None
    found = dict(drafts.priors_for(learners, tables, "squeezenet", problem.deployment))
    assert list(found) == ["means", "effects", "means, without its family", "effects, without its family"]
    assert set(asked) == {None, "squeezenet"}
    counts = [means.best.means.weight([""]) for means in found.values() if isinstance(means, StepMeans)]
    assert counts[0] > counts[1]
    # What the table knows nothing of is drafted by all of it.
    found = dict(drafts.priors_for(learners, tables, "densenet121", problem.deployment))
    assert list(found) == ["means, without its family", "effects, without its family"]
    assert asked[-1] is None
    assert [one.best.means.weight([""]) for one in found.values() if isinstance(one, StepMeans)] == counts[:1]


def test_a_report_has_a_row_for_each_prior(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = chain_problem(tmp_path, 1, "both")
    monkeypatch.setattr(drafts, "open_problem", lambda *_, **__: problem)
    monkeypatch.setattr(drafts, "priors_for", lambda *_: iter([("all", Told()), ("nothing", Silent())]))
    assert drafts.main(["--models", "bert-tiny", "--out", str(tmp_path / "new" / "drafts.json")]) == 0
    report = json.loads((tmp_path / "new" / "drafts.json").read_text())
    assert json.loads(capsys.readouterr().out) == report
    assert report["summary"] == {
        "all": {"models": 1, "faster": 1, "slower": 0, "speedup": 2.3333},
        "nothing": {"models": 1, "faster": 0, "slower": 0, "speedup": 1.0},
    }
    drafted, kept = report["rows"]
    assert drafted["prior"] == "all"
    assert drafted["speedup"] == pytest.approx(7.0 / 3.0, abs=1e-4)
    assert (kept["chains"], kept["speedup"], kept["speedup_ci95"]) == (0, 1.0, [1.0, 1.0])


class Silent(ForecastsByChain):
    """Knows nothing."""

    def forecast(self, rules: Any, families: Any, shapes: str, guess: float, window: str = "") -> Forecast | None:
        return None
