"""Means across processors: what they are told of, and how well they forecast."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.effects.step_means import Expectation
from agents.effects.training import EffectTraining
from benchmarks.learning import processors
from benchmarks.learning.processors import Arguments, ForecastScore, Processors, score, table
from envs.window import WindowTable
from envs.window.table import SHIPPED
from tests.agents.effects.planted_savings import on_device

A, B = "One, cpu family 6, model 1, stepping 2 [avx2]", "One, cpu family 6, model 1, stepping 2 [avx2 avx512f]"
FAMILY = "vgg"


@pytest.fixture(scope="module")
def both() -> Processors:
    """Two processors, on one of which every step saves 0.2 more."""
    shipped = WindowTable.load(SHIPPED)
    return Processors([on_device(shipped, A, 0.1)], on_device(shipped, B, -0.1))


def test_timings_of_the_processor_itself_mend_forecasts(both: Processors) -> None:
    every = both.drawn(FAMILY, float("inf"), 0)
    told = {"none": [], "a minute": both.drawn(FAMILY, 1.0, 0), "all": every}
    found = {
        name: score("means", name, [both.fold(FAMILY, both.means(FAMILY, windows))]) for name, windows in told.items()
    }
    assert found["none"].own_error > 0.1
    assert found["none"].own_error > 1.5 * found["a minute"].own_error
    assert found["a minute"].own_error > found["all"].own_error
    alone = score("means", "alone", [both.fold(FAMILY, both.means(FAMILY, every, alone=True))])
    assert alone.own_error == pytest.approx(found["all"].own_error, abs=0.02)


def test_they_mend_a_little_of_what_a_model_predicts(both: Processors) -> None:
    predicted = both.predicted([FAMILY], EffectTraining(epochs=2))
    told = {"none": [], "all": both.drawn(FAMILY, float("inf"), 0)}
    found = {
        name: score("model", name, [both.fold(FAMILY, both.means(FAMILY, windows), predicted)])
        for name, windows in told.items()
    }
    # Only by the same rewrites on alike shapes: what is left out has few of these.
    assert found["none"].own_error > found["all"].own_error > 0.1
    families = [window.family for window in WindowTable.load(SHIPPED).windows]
    assert both.predicted(sorted({*families} - {"nasrnn"}), EffectTraining(epochs=1)).keys() > predicted.keys()


def test_the_architecture_is_never_told(both: Processors) -> None:
    families = [window.family for window in WindowTable.load(SHIPPED).windows]
    for minutes in (1.0, float("inf")):
        assert FAMILY not in {families[number] for number in both.drawn(FAMILY, minutes, 0)}
    assert len(both.drawn(FAMILY, float("inf"), 0)) == len(families) - families.count(FAMILY)
    assert 0 < len(both.drawn(FAMILY, 1.0, 0)) < len(both.drawn(FAMILY, 3.0, 0))
    assert both.drawn(FAMILY, 1.0, 0) != both.drawn(FAMILY, 1.0, 1)


def test_a_perfect_forecast_has_no_error_and_finds_every_best_step(both: Processors, monkeypatch: Any) -> None:
    learner = both._own
    gains = {own: learner.gains(numbers := learner.timed(None), own=own).values for own in (True, False)}
    place = {step: number for number, step in enumerate(numbers.tolist())}

    class Known:
        def __init__(self, step: int) -> None:
            self.mean = float(gains[False][place[step]])
            self.own = Expectation(float(gains[True][place[step]]), 0.0)

    monkeypatch.setattr(learner, "forecast", lambda means, step: Known(step))
    found = score("means", "perfect", [both.fold(FAMILY, both.means(FAMILY, []))])
    assert (found.own_error, found.best_error) == (0.0, 0.0)
    assert found.rank == pytest.approx(1.0)
    assert found.first == 1.0


def test_the_scores_are_written_as_json_and_as_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        ForecastScore("means", "none", 0.05, 0.06, 0.4, 0.5),
        ForecastScore("model of effects", "3 min", 0.04, 0.05, 0.5, 0.75),
    ]
    monkeypatch.setattr(processors, "scores", lambda arguments: rows)
    assert processors._run(Arguments(out=tmp_path / "p.json", json=True)) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((tmp_path / "p.json").read_text())
    assert (tmp_path / "p.md").read_text() == table(rows) + "\n"
    assert "| model of effects | 3 min | 0.0400 | 0.0500 | 0.500 | 75% |" in table(rows)
    assert np.isclose(json.loads((tmp_path / "p.json").read_text())["rows"][0]["rank"], 0.4)
