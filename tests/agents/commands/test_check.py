"""rewritegym check: a result against its original, on this machine."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx
import pytest

from agents.commands import check
from agents.conclusion.recordings import actions_file, write_recording
from graph_rewrite.delivery.equivalence import Equivalence
from graph_rewrite.delivery.ship import checked_model, kept_original
from graph_rewrite.latency import Deployment, Latency
from graph_rewrite.onnx_files.loading import load
from graph_rewrite.onnx_files.saving import materialize
from graph_rewrite.replay import read_recording
from graph_rewrite.task.problem import open_problem
from rewritegym.cli import main
from tests.agents.commands.test_apply import recorded
from tests.graph_rewrite.replay.models import write_network
from tests.graph_rewrite.sample_models import parsed, weights

SAME = Equivalence(True, 1e-7, 1e-4, "")
Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """A result beside its original, with what it was recorded with."""
    original = write_network(tmp_path / "model.onnx")
    problem = open_problem(f"file:{original}", provider="cpu", cached=False)
    candidate = next(c for c in problem.rewriter.candidates(problem.model.graph) if c.rule == "ComposeTransposes")
    path = tmp_path / "model.optimized.onnx"
    checked_model(candidate.apply(), original, Deployment(), workspace=tmp_path / "work").write_to(path)
    write_recording(recorded(problem, "ComposeTransposes"), path)
    return path


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> Callable[[float, float], None]:
    """Plant the interval of the speed-up that is measured."""

    def plant(low: float, high: float) -> None:
        speedup = (low * high) ** 0.5
        latency = Latency(1.0, speedup, (low, high), 10, speedup)
        monkeypatch.setattr(check, "compare_files", lambda *_, **__: latency)

    return plant


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main(["check", *map(str, arguments), "--json"])
        text = capsys.readouterr().out
        return code, json.loads(text) if text else {}

    return run


class TestVerdicts:
    @pytest.mark.parametrize(
        ("interval", "code", "word"),
        [((1.1, 1.2), 0, "faster"), ((0.9, 1.1), 3, "not surely faster"), ((0.8, 0.9), 4, "slower")],
    )
    def test_by_the_interval(self, interval: tuple[float, float], code: int, word: str) -> None:
        verdict, status = check.judge(SAME, Latency(1.0, 1.0, interval, 10, 1.0))
        assert status == code
        assert verdict.startswith(word)

    def test_an_original_that_was_kept(self) -> None:
        latency = Latency(1.0, 1.0, (0.9, 1.1), 10, 1.0)
        verdict, status = check.judge(SAME, latency, kept=True)
        assert status == 3
        assert verdict.startswith("the result is its original")
        assert "optimize again" not in verdict

    def test_what_cannot_be_run_or_differs(self) -> None:
        assert check.judge(SAME, Latency.failed("crash", "gone"))[1] == 1
        verdict, status = check.judge(Equivalence(False, 0.5, 1e-4, "y differs"), None)
        assert status == 1
        assert "y differs" in verdict


class TestCommand:
    def test_finds_the_original(self, result: Path, run: Run, measured: Callable[[float, float], None]) -> None:
        measured(1.2, 1.3)
        code, found = run(result)
        assert code == 0
        assert found["verified"]
        assert found["original"] == str(result.with_name("model.onnx"))
        assert found["notes"] == []
        measured(0.7, 0.8)
        assert run(result)[0] == 4

    def test_really_measures(self, result: Path, run: Run) -> None:
        code, found = run(result, "--seconds", "0.1")
        assert code in (0, 3, 4)
        assert found["speedup_ci95"][0] <= found["speedup"] <= found["speedup_ci95"][1]
        assert found["latency_ms"] > 0.0

    def test_other_machine_and_changed_original(
        self, result: Path, run: Run, measured: Callable[[float, float], None]
    ) -> None:
        measured(1.2, 1.3)
        file = actions_file(result)
        old = {"device": "another CPU", "onnxruntime": "1.2.3"}
        replace(read_recording(file), environment=old, model_hash="another").write(file)
        notes = " ".join(run(result)[1]["notes"])
        assert "another CPU" in notes
        assert "1.2.3" in notes
        assert "has changed since" in notes

    def test_outputs_that_differ(self, result: Path, run: Run, tmp_path: Path) -> None:
        other = write_network(tmp_path / "other.onnx", seed=9)
        code, found = run(result, other)
        assert code == 1
        assert not found["verified"]
        assert found["speedup"] is None

    def test_original_unknown_or_gone(self, result: Path, run: Run, capsys: pytest.CaptureFixture[str]) -> None:
        result.with_name("model.onnx").rename(result.with_name("elsewhere.onnx"))
        assert run(result)[0] == 2
        actions_file(result).unlink()
        assert main(["check", str(result)]) == 2
        assert "name the original" in capsys.readouterr().err

    def test_no_result_of_ours(self, result: Path, run: Run, tmp_path: Path) -> None:
        plain = shutil.copy(result.with_name("model.onnx"), tmp_path / "plain.onnx")
        assert run(plain, result)[0] == 2


@pytest.mark.parametrize(
    "text",
    [
        "(seq(float[4]) s, int64 p, float[4] x) => (float[4] y) { t = SequenceAt(s, p)  y = Add(t, x) }",
        "(int64[2] ids) => (float[2,4] y) { y = Gather(table, ids) }",
    ],
    ids=["a sequence", "a small table"],
)
def test_inputs_are_those_that_the_model_takes(tmp_path: Path, run: Run, text: str) -> None:
    original = tmp_path / "model.onnx"
    onnx.save(parsed(text, weights("table", 3, 4)), original)
    copy = kept_original(original, Deployment()).write_to(tmp_path / "model.optimized.onnx")
    code, found = run(copy, original, "--seconds", "1")
    assert code in (0, check.EXIT_NO_GAIN, check.EXIT_SLOWER), found  # measured, whatever it gains
    assert found["verified"]
    assert found["latency_ms"] > 0


def test_a_shape_that_is_nowhere_recorded_is_asked_for(
    tmp_path: Path, run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    original = tmp_path / "model.onnx"
    onnx.save(parsed("(float[n,4] x) => (float[n,4] y) { y = Neg(x) }"), original)
    copy = kept_original(original, Deployment(), runnable=materialize(load(original, {"x": (2, 4)}), tmp_path / "work"))
    path = copy.write_to(tmp_path / "model.optimized.onnx")
    assert main(["check", str(path), str(original)]) == 2
    assert "--shape x:1,4" in capsys.readouterr().err.replace("\n", " ")
    assert run(path, original, "--shape", "x:2,4", "--seconds", "0.1")[1]["verified"]
