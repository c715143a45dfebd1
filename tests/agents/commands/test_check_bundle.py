"""rewritegym check on a bundle: each model against the original, at the shapes that it is for."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agents.commands import check
from agents.conclusion.recordings import recording_of, write_recording
from graph_rewrite.latency import Latency
from graph_rewrite.replay.recording import RecordedStep
from graph_rewrite.task.problem import open_problem
from rewritegym.cli import main
from tests.graph_rewrite.delivery.bundle_models import made_bundle

FILES = ("general.onnx", "ids-1x24.onnx")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle with two models, and what they were recorded with."""
    made = made_bundle(tmp_path, shapes=((1, 24),))
    problem = open_problem(f"file:{tmp_path / 't.onnx'}", provider="cpu", cached=False, shapes={"ids": (1, 24)})
    step = RecordedStep("FuseDividedMatMul", "site", 1)
    recording = replace(recording_of(problem, (), problem.model.graph), steps=(step,))

    def finish(staged: Path) -> None:
        for name in FILES:
            write_recording(recording, staged / name)

    return made.write_to(tmp_path / "b", finish)


def plant(patch: pytest.MonkeyPatch, **speedups: float) -> None:
    """Plant the speed-up of each model."""

    def measured(before: Path, after: Path, *_: Any, **__: Any) -> Latency:
        speedup = speedups["own" if after.name.startswith("ids") else "general"]
        return Latency(1.0, speedup, (speedup - 0.01, speedup + 0.01), 10, speedup)

    patch.setattr(check, "compare_files", measured)


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    capsys.readouterr()
    code = main(["check", *map(str, arguments), "--json"])
    text = capsys.readouterr().out
    return code, json.loads(text) if text else {}


@pytest.mark.parametrize(
    ("general", "own", "code"), [(1.1, 1.3, 0), (1.0, 1.3, 3), (1.1, 0.9, 4), (0.9, 1.0, 4)], ids=str
)
def test_each_model_is_measured_and_the_worst_decides(
    bundle: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    general: float,
    own: float,
    code: int,
) -> None:
    plant(monkeypatch, general=general, own=own)
    status, found = run(capsys, bundle)
    assert status == code
    assert [Path(model["optimized"]).name for model in found["models"]] == list(FILES)
    assert all(model["verified"] for model in found["models"])
    assert found["models"][1]["speedup"] == own


def test_verdicts_name_the_models(
    bundle: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(monkeypatch, general=1.1, own=1.3)
    assert main(["check", str(bundle)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("general.onnx: faster than its original")
    assert lines[1].startswith("ids-1x24.onnx: faster than its original")


def test_a_changed_bundle_and_a_shape_are_mistakes(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(bundle), "--shape", "ids:1,24"]) == 2
    assert "have shapes of their own: leave --shape out" in capsys.readouterr().err
    assert main(["check", str(bundle), "--input-data", "mine.npz"]) == 2
    assert "have shapes of their own: leave --input-data out" in capsys.readouterr().err
    with (bundle / "weights.bin").open("ab") as stream:
        stream.write(b"!")
    assert main(["check", str(bundle)]) == 2
    assert "weights.bin is not the file that the bundle was written with" in capsys.readouterr().err


def test_other_commands_ask_for_a_file(bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (
        ["inspect", bundle],
        ["optimize", bundle],
        ["apply", bundle / f"{FILES[0]}.actions.json", bundle],
    ):
        assert main([str(argument) for argument in arguments]) == 2
        assert "is a folder; name a model file in it" in capsys.readouterr().err
