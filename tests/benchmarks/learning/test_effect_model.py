"""The command that scores models of effects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.learning.effect_model import main
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


def test_models_are_scored_on_families_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    labels = drawn_labels(convolutions(tmp_path, "Tanh"), tmp_path, DrawnTimer())  # with those before, in one store
    assert len({label.family for label in labels}) == 2
    options = ["--epochs", "1", "--members", "1", "--models", "means", "plain", "graph"]
    assert main([str(tmp_path / "drawn.sqlite3"), "--out", str(tmp_path / "scores.json"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "scores.json").read_text("utf-8"))
    assert set(report["models"]) == {"means", "plain", "graph"}
    for scores in report["models"].values():
        assert set(scores) == {"all", *(label.family for label in labels)}
        assert scores["all"]["labels"] == len({(label.body["place"], *label.body["steps"]) for label in labels})
