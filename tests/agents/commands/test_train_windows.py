"""train.py --windows: a run's folder, its checkpoint and scores, and what is refused."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from agents.commands.train import main
from agents.ppo.checkpoint import load_checkpoint
from agents.ppo.progress import TrainingProgress
from agents.universal.trainer import WindowTrainer
from envs.window import WindowTable
from envs.window.table import SHIPPED
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels

SMALL = (
    "pretraining.epochs=1", "training.total_timesteps=64", "training.n_envs=2", "ppo.n_steps=16", "encoder.hidden=16",
    "encoder.layers=1", "encoder.attention_heads=2",
)  # fmt: skip
LEARNT = ("nasrnn", "recurrent")


def arguments(folder: Path) -> list[str]:
    families = {window.family for window in WindowTable.load(SHIPPED).windows}
    without = [word for family in sorted(families - set(LEARNT)) for word in ("--without", family)]
    settings = [word for setting in SMALL for word in ("--set", setting)]
    return ["--windows", "--runs", str(folder), *without, *settings]


def only_run(folder: Path) -> Path:
    (run,) = folder.iterdir()
    return run


def test_a_policy_is_trained_and_scored(tmp_path: Path) -> None:
    assert main(arguments(tmp_path)) == 0
    run = only_run(tmp_path)
    assert run.name.endswith("-windows-ppo")
    described = load_checkpoint(run).description
    assert (described.trained_in, described.timesteps, described.env.horizon) == ("windows", 64, 4)
    result = json.loads((run / "result.json").read_text())
    windows = WindowTable.load(SHIPPED).windows
    learnt = sum(window.family in LEARNT for window in windows)
    assert result["scores"]["seen"]["windows"] == learnt
    assert result["scores"]["left out"]["windows"] == len(windows) - learnt
    assert all(score["random"] < score["best"] >= score["policy"] for score in result["scores"].values())
    assert (result["training"]["epochs"], result["training"]["timesteps"]) == (1, 64)
    assert result["trained_on"] == f"{learnt} windows of 2 architectures in windows.npz"
    assert list((run / "tensorboard").iterdir())
    assert (run / "learning-curve.png").exists()


def test_a_policy_learns_from_several_tables(tmp_path: Path) -> None:
    shutil.copy(SHIPPED, tmp_path / "other.npz")
    tables = ["--table", str(SHIPPED), "--table", str(tmp_path / "other.npz")]
    assert main([*arguments(tmp_path / "runs"), *tables, "--set", "training.total_timesteps=0"]) == 0
    run = only_run(tmp_path / "runs")
    result = json.loads((run / "result.json").read_text())
    learnt = sum(window.family in LEARNT for window in WindowTable.load(SHIPPED).windows)
    assert result["trained_on"] == f"{2 * learnt} windows of 2 architectures in windows.npz, other.npz"
    assert result["scores"]["seen"]["windows"] == 2 * learnt
    assert yaml.safe_load((run / "config.yaml").read_text())["command"]["table"] == tables[1::2]


def test_the_universal_policy_goes_on_with_what_was_timed_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    settings = ("fine_tuning.epochs=1", "fine_tuning.rehearsed=3", "training.n_envs=2", "ppo.n_steps=16")
    given = [word for setting in settings for word in ("--set", setting)]
    runs, store = tmp_path / "runs", tmp_path / "drawn.sqlite3"
    line = ["--windows", "--from-experience", "--experience", str(store), "--total-timesteps", "32"]
    assert main([*line, "--runs", str(runs), *given]) == 0
    assert f"{len(labels)} labels in" in capsys.readouterr().err
    found, before = (load_checkpoint(path).description for path in (only_run(runs), "checkpoints/universal"))
    assert (found.trained_in, found.timesteps) == ("windows", 32)
    assert " architectures in drawn.sqlite3, after " in found.trained_on
    assert found.trained_on.endswith(before.trained_on)
    assert {*(found.offered or ())} >= {*(before.offered or ())}


def interrupted(line: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Interrupt a training after its first steps of PPO; return the arguments with which it says that it goes on."""
    original = WindowTrainer.run

    def run(self: WindowTrainer, on_step: object = None) -> TrainingProgress:
        def stop(progress: TrainingProgress) -> None:
            if progress.timesteps >= 20:
                raise KeyboardInterrupt

        return original(self, stop)

    with monkeypatch.context() as patched:
        patched.setattr(WindowTrainer, "run", run)
        with pytest.raises((KeyboardInterrupt, SystemExit)):
            raise SystemExit(main(line))
    told = capsys.readouterr().err
    (command,) = (text.partition("Go on with: ")[2] for text in told.splitlines() if text.startswith("stopped;"))
    words = shlex.split(command)
    assert words[:2] == ["rewritegym", "train"]
    return words[2:]


def test_an_interrupted_training_says_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = interrupted(arguments(tmp_path), monkeypatch, capsys)
    assert words[0] == "--set"
    again = tmp_path / "again"
    assert main([*words, "--runs", str(again)]) == 0
    assert json.loads((only_run(again) / "result.json").read_text())["training"]["timesteps"] >= 64


def test_an_interrupted_training_on_experience_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    settings = ("fine_tuning.epochs=2", "fine_tuning.rehearsed=3", "training.n_envs=2", "ppo.n_steps=16")
    given = [word for setting in settings for word in ("--set", setting)]
    line = [
        "--windows",
        "--from-experience",
        "--experience",
        str(tmp_path / "drawn.sqlite3"),
        "--total-timesteps",
        "64",
    ]
    words = interrupted([*line, "--runs", str(tmp_path / "first"), *given], monkeypatch, capsys)
    again = tmp_path / "again"
    assert main([*words, "--runs", str(again)]) == 0
    run = only_run(again)
    assert json.loads((run / "result.json").read_text())["training"]["epochs"] == 2
    found, shipped = (load_checkpoint(path).description for path in (run, "checkpoints/universal"))
    assert found.timesteps > 64  # with those of the interrupted training
    assert found.trained_on.endswith(f"drawn.sqlite3, after {shipped.trained_on}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["--without", "resnet"], "add --windows"),
        (["--windows", "--without", "unheard"], "no window of the table is of"),
        (["--windows", "--table", "nowhere.npz"], "nowhere.npz"),
        (["--windows", "--episodes", "3"], "name --total-timesteps"),
        (["--windows", "--set", "env.features=plain"], "env.features=full"),
        (["--windows", "--resume", "checkpoints/bert-tiny"], "not on windows"),
        (["--from-experience"], "add --windows"),
        (["--windows", "--experience", "mine.sqlite3"], "add --from-experience"),
        (["--windows", "--from-experience", "--table", "mine.npz"], "leave out --table"),
        (["--windows", "--from-experience", "--experience", "nowhere.sqlite3"], "nowhere.sqlite3: there is no such"),
        (["--whole-graph", "--resume", "checkpoints/universal"], "--whole-graph"),
    ],
)
def test_what_makes_no_sense_is_told(
    given: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*given, "--runs", str(tmp_path)]) == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
