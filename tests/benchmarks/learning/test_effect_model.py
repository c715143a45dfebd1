"""The command that scores models of effects."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from agents.effects.model import EffectPredictor
from agents.effects.samples import StateSample, samples_of
from agents.effects.training import EffectTraining, train
from benchmarks.learning import effect_model
from benchmarks.learning.effect_model import main
from envs.window.table import SHIPPED, WindowTable
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


def test_models_are_scored_on_families_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    labels = drawn_labels(convolutions(tmp_path, "Tanh"), tmp_path, DrawnTimer())  # with those before, in one store
    assert len({label.family for label in labels}) == 2
    options = ["--epochs", "1", "--members", "1", "--models", "means", "plain", "graph", "--further"]
    assert main([str(tmp_path / "drawn.sqlite3"), "--out", str(tmp_path / "scores.json"), *options]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "scores.json").read_text("utf-8"))
    assert set(report["models"]) == {"means", "plain", "graph"}
    for scores in report["models"].values():
        assert set(scores) == {"all", *(label.family for label in labels)}
        assert scores["all"]["labels"] == len({(label.body["place"], *label.body["steps"]) for label in labels})


def test_models_learn_from_other_processors_too_but_not_from_the_family_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    labels = drawn_labels(convolutions(tmp_path, "Tanh"), tmp_path, DrawnTimer())
    families = {label.family for label in labels}
    table = WindowTable.load(SHIPPED)
    first, second, *_ = sorted({window.family for window in table.windows})
    named = dict(zip((first, second), sorted(families), strict=True))
    windows = tuple(replace(one, family=named.get(one.family, one.family)) for one in table.windows)
    replace(table, windows=windows).save(tmp_path / "further.npz")
    learnt = list[int]()

    def noting(samples: Sequence[StateSample], settings: EffectTraining) -> EffectPredictor:
        learnt.append(len(samples))
        return train(samples[:20], settings)

    monkeypatch.setattr(effect_model, "train", noting)
    for further in ([], [str(tmp_path / "further.npz")]):
        options = ["--epochs", "1", "--members", "1", "--models", "plain", "--further", *further]
        assert main([str(tmp_path / "drawn.sqlite3"), *options]) == 0
    capsys.readouterr()
    more = [after - before for before, after in zip(learnt[:2], learnt[2:], strict=True)]
    whole = len(list(samples_of(table)))
    own = [
        len(list(samples_of(table, [n for n, one in enumerate(windows) if one.family == family])))
        for family in sorted(families)
    ]
    assert sorted(more) == sorted(whole - each for each in own)
