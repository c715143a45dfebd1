"""The command that trains and scores models of effects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents.effects.model import EffectPredictor
from benchmarks.learning.effect_model import main
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


def test_models_are_scored_on_families_left_out_and_one_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    labels = drawn_labels(convolutions(tmp_path, "Tanh"), tmp_path, DrawnTimer())  # with those before, in one store
    assert len({label.family for label in labels}) == 2
    options = ["--epochs", "1", "--members", "1", "--models", "means", "plain", "graph"]
    assert main([str(tmp_path / "drawn.sqlite3"), "--out", str(tmp_path / "out"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "out" / "report.json").read_text("utf-8"))
    assert set(report["models"]) == {"means", "plain", "graph"}
    for scores in report["models"].values():
        assert set(scores) == {"all", *(label.family for label in labels)}
        assert scores["all"]["labels"] == len({(label.body["place"], *label.body["steps"]) for label in labels})
    assert EffectPredictor.load(tmp_path / "out").kind == "plain"
