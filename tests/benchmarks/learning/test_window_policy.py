"""Scores of policies of windows: on what a training left out, and by leaving out parts in turn."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from agents.effects.stored import PlainPredictor
from agents.effects.training import EffectTraining
from agents.ppo.checkpoint import load_checkpoint
from agents.universal.trainer import WindowTrainer, WindowTrainingOptions
from benchmarks.learning.window_policy import main, summary
from envs.window import WindowTable
from envs.window.table import SHIPPED
from tests.agents.universal.planted_table import CONFIG

SMALL = (
    "pretraining.epochs=1", "training.total_timesteps=0", "training.n_envs=1", "encoder.hidden=16", "encoder.layers=1",
    "encoder.attention_heads=2",
)  # fmt: skip


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = WindowTable.load(SHIPPED)
    without = tuple(sorted({window.family for window in table.windows} - {"nasrnn", "recurrent"}))
    folder = tmp_path_factory.mktemp("checkpoint")
    trainer = WindowTrainer(WindowTrainingOptions(table, "windows.npz", without), CONFIG, folder)
    trainer.run()
    trainer.close()
    return folder


def test_a_checkpoint_is_scored_on_what_its_training_left_out(
    checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(checkpoint), "--families", "dalle", "vit", "--out", str(tmp_path / "scores.json")]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report == json.loads((tmp_path / "scores.json").read_text())
    windows = WindowTable.load(SHIPPED).windows
    assert report["windows"] == sum(one.family in ("dalle", "vit") and one.chains > 1 for one in windows)
    assert report["held_out"]
    methods = report["methods"]
    assert set(methods) == {"policy", "best chain", "means", "effect model", "random", "stop"}
    assert methods["best chain"]["saved_percent"] >= max(score["saved_percent"] for score in methods.values())
    for score in methods.values():
        low, high = score["ci95"]
        assert low <= score["policy_ahead_percent"] <= high
        ahead = methods["policy"]["saved_percent"] - score["saved_percent"]
        assert score["policy_ahead_percent"] == pytest.approx(ahead, abs=2e-3)


def test_seen_architectures_are_told_from_others(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(checkpoint), "--families", "nasrnn", "--least-chains", "1"]) == 0
    assert not json.loads(capsys.readouterr().out)["held_out"]


def test_parts_are_left_out_in_turn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.learning.window_policy.EffectTraining", lambda members: EffectTraining(epochs=1))
    settings = [word for setting in SMALL for word in ("--set", setting)]
    line = ["--folds", "2", "--keep", str(tmp_path), *settings]
    assert main(line) == 0
    printed = capsys.readouterr()
    report = json.loads(printed.out)
    table = WindowTable.load(SHIPPED)
    with_choice = [window for window in table.windows if window.chains > 1]
    assert report["windows"] == len(with_choice)  # each once
    assert report["families"] == sorted({window.family for window in with_choice})
    assert printed.err.count("without ") == 2
    left_out = [load_checkpoint(tmp_path / f"seed-0-part-{part}").description.left_out for part in range(2)]
    assert sorted([*left_out[0], *left_out[1]]) == sorted({window.family for window in table.windows})
    assert all(PlainPredictor.load(tmp_path / f"seed-0-part-{part}").stored.kind == "plain" for part in range(2))
    monkeypatch.setattr(WindowTrainer, "run", lambda self: pytest.fail("it was trained"))
    monkeypatch.setattr("benchmarks.learning.window_policy.train", lambda *_: pytest.fail("effects were trained"))
    assert main(line) == 0
    assert json.loads(capsys.readouterr().out) == report
    with pytest.raises(pytest.fail.Exception, match="it was trained"):
        main([*line, "--set", "pretraining.epochs=2"])


def test_intervals_are_of_differences_within_architectures() -> None:
    """Differences between architectures widen no interval."""
    families = ["a"] * 20 + ["b"] * 20
    policy = np.array([0.3] * 20 + [0.0] * 20)
    found = summary({"policy": policy, "stop": np.zeros(40), "same": policy}, families)
    assert found["stop"] == {"saved_percent": 0.0, "policy_ahead_percent": 15.0, "ci95": [15.0, 15.0]}
    assert found["same"]["ci95"] == [0.0, 0.0]
    noisy = policy + np.random.default_rng(0).normal(0.0, 0.1, 40)
    low, high = summary({"policy": noisy, "stop": np.zeros(40)}, families)["stop"]["ci95"]
    assert low < 15.0 < high
    assert high - low == pytest.approx(2 * 1.96 * 10.0 / 40**0.5, rel=0.3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "name a checkpoint, or --folds"),
        (["--folds", "1"], "--folds must be from 2"),
        (["checkpoints/bert-tiny", "--families", "resnet"], "not on windows"),
        (["checkpoints/bert-tiny"], "its training left nothing out"),
        (["nowhere"], "no checkpoint"),
    ],
)
def test_what_makes_no_sense_is_told(given: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(given) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
