"""The options that say how outputs are compared: the same for every command that compares."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.commands import check
from agents.commands.apply import ApplyArguments
from agents.commands.check import CheckArguments
from agents.commands.optimize import OptimizeArguments
from agents.conclusion.recordings import actions_file, write_recording
from agents.optimization.comparison_options import ComparisonOptions
from graph_rewrite.delivery.ship import checked_model
from graph_rewrite.errors import UserError
from graph_rewrite.latency import Deployment, Latency
from graph_rewrite.replay import RecordedStep, read_recording
from graph_rewrite.system.command_line import parse
from graph_rewrite.task.problem import open_problem
from rewritegym.cli import main
from tests.agents.commands.test_apply import recorded
from tests.graph_rewrite.replay.models import write_network

GIVEN = [
    "--error-budget",
    "0.01",
    "--rtol",
    "0.1",
    "--atol",
    "0.2",
    "--strict",
    "--input-data",
    "a",
    "--input-data",
    "b",
]
COMPARISON = ComparisonOptions(0.01, 0.1, 0.2, True, ("a", "b"))
Run = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str | Path) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = main([*map(str, arguments), "--json"])
        printed = capsys.readouterr()
        return code, {**(json.loads(printed.out) if printed.out else {}), "stderr": printed.err}

    return run


def result_of(folder: Path, *rules: str, factor: float = 1.7) -> Path:
    """A result of some rules with its recording, beside its original `model.onnx`."""
    original = write_network(folder / "model.onnx", factor=factor)
    problem = open_problem(f"file:{original}", provider="cpu", cached=False)
    recording = recorded(problem, *rules)
    graph = problem.model.graph
    for rule in rules:
        graph = next(c for c in problem.rewriter.candidates(graph) if c.rule == rule).apply()
    path = folder / "model.optimized.onnx"
    checked_model(graph, original, Deployment(), workspace=folder / "work").write_to(path)
    write_recording(recording, path)
    return path


@pytest.fixture(scope="module")
def composed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A result of one rewrite, for tests that leave it as it is."""
    return result_of(tmp_path_factory.mktemp("composed"), "ComposeTransposes")


def overflowing(folder: Path) -> Path:
    """Inputs whose products overflow before they are scaled down, and not after."""
    np.savez(folder / "large.npz", x=np.full((2, 4), 3e38, np.float32) * np.float32([1, -1, 1, -1]))
    return folder / "large.npz"


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A result that is measured as faster, and the inputs that it is measured with."""
    asked: list[Any] = []

    def compare_files(*_: Any, feeds: Any, **__: Any) -> Latency:
        asked.append(feeds)
        return Latency(1.0, 1.25, (1.2, 1.3), 10, 1.25)

    monkeypatch.setattr(check, "compare_files", compare_files)
    return asked


def test_every_command_takes_them() -> None:
    found = parse(OptimizeArguments, ["m.onnx", *GIVEN], "optimize").search
    assert {f.name: getattr(found, f.name) for f in fields(COMPARISON)} == vars(COMPARISON)
    assert parse(ApplyArguments, ["a.json", "m.onnx", *GIVEN], "apply").comparison == COMPARISON
    assert parse(CheckArguments, ["m.onnx", *GIVEN], "check").comparison == COMPARISON


@pytest.mark.parametrize("command", ["apply", "check"])
def test_elements_within_limits(tmp_path: Path, run: Run, planted: list[Any], command: str) -> None:
    """Folding a factor of 1.7 into weights rounds otherwise than the original does."""
    result = result_of(tmp_path, "FoldScaleAfterMatMul")
    files = [actions_file(result), tmp_path / "model.onnx", tmp_path / "out.onnx"] if command == "apply" else [result]
    code, found = run(command, *files, "--rtol", "0", "--atol", "0")
    assert (code, found["verified"]) == (1, False)
    assert not (tmp_path / "out.onnx").exists()
    code, found = run(command, *files, "--error-budget", "1e-12")
    assert (code, found["verified"]) == (1, False)
    code, found = run(command, *files, "--rtol", "1e-3", "--atol", "1e-3")
    assert (code, found["verified"]) == (0, True)
    (tmp_path / "out.onnx").unlink(missing_ok=True)
    code, found = run(command, *files, "--rtol", "-1")
    assert code == 2
    assert "rtol must be a number of 0 or more" in found["stderr"]


@pytest.mark.parametrize("command", ["apply", "check"])
def test_on_the_users_inputs(tmp_path: Path, run: Run, planted: list[Any], command: str) -> None:
    result = result_of(tmp_path, "FoldScaleAfterMatMul", factor=1e-3)
    files = [actions_file(result), tmp_path / "model.onnx", tmp_path / "out.onnx"] if command == "apply" else [result]
    np.savez(tmp_path / "usual.npz", x=np.ones((3, 2, 4), np.float32))
    code, found = run(command, *files, "--input-data", tmp_path / "usual.npz")
    assert (code, found["verified"]) == (0, True)
    if command == "check":
        (recipes,) = planted
        assert [(spec.npz, spec.item) for spec in recipes] == [(str(tmp_path / "usual.npz"), item) for item in range(3)]
    (tmp_path / "out.onnx").unlink(missing_ok=True)
    code, found = run(command, *files, "--input-data", overflowing(tmp_path))
    assert (code, found["verified"]) == (1, False)
    assert "large.npz" in found["message" if command == "apply" else "verdict"]
    code, found = run(command, *files, "--input-data", tmp_path / "none.npz")
    assert code == 2
    assert "there is no such file" in found["stderr"]


def test_strict_application_leaves_out_what_loses_values(tmp_path: Path, run: Run) -> None:
    result = result_of(tmp_path, "FuseScaledMatMul", "ComposeTransposes")
    files = actions_file(result), tmp_path / "model.onnx", tmp_path / "out.onnx"
    code, found = run("apply", *files, "--strict")
    assert (code, found["onnx_path"]) == (1, None)
    assert "NaN and infinities" in found["left_out"][0]
    assert "--strict" in found["left_out"][0]
    code, found = run("apply", *files, "--strict", "--partial")
    assert code == 0
    assert [step["rule"] for step in found["rewrites"]] == ["ComposeTransposes"]
    assert run("apply", *files, "--overwrite")[1]["applied"] == 2


def test_strict_application_leaves_out_settings_that_lose_values(tmp_path: Path, run: Run, composed: Path) -> None:
    recording, settings = read_recording(actions_file(composed)), {"set_denormal_as_zero": True}
    lossy = RecordedStep("set set_denormal_as_zero=true", "deployment", 1, refused=(), settings=settings)
    other = replace(lossy, rule="set enable_mem_pattern=false", settings={**settings, "enable_mem_pattern": False})
    file = replace(recording, steps=(lossy, other, *recording.steps)).write(tmp_path / "actions.json")
    code, found = run("apply", file, composed.with_name("model.onnx"), tmp_path / "out.onnx", "--strict", "--partial")
    assert code == 0, found
    assert "set_denormal_as_zero=true: it does not keep every value (denormals)" in found["left_out"][0]
    assert found["deployment"]["enable_mem_pattern"] is False
    assert "set_denormal_as_zero" not in found["deployment"]


def test_strict_checking(tmp_path: Path, run: Run, planted: list[Any]) -> None:
    result = result_of(tmp_path, "ComposeTransposes")
    assert run("check", result, "--strict")[0] == 0
    result = result_of(tmp_path, "FuseScaledMatMul")
    assert run("check", result)[0] == 0
    code, found = run("check", result, "--strict")
    assert (code, found["verified"]) == (1, False)
    assert "FuseScaledMatMul does not keep every value" in found["verdict"]
    actions_file(result).unlink()
    code, found = run("check", result, tmp_path / "model.onnx", "--strict")
    assert code == 2
    assert "--strict reads the rewrites" in found["stderr"]


@pytest.mark.parametrize("threads", ["0", "99999"])
@pytest.mark.parametrize("command", ["apply", "check"])
def test_threads_that_make_no_sense(composed: Path, tmp_path: Path, run: Run, command: str, threads: str) -> None:
    again = [actions_file(composed), composed.with_name("model.onnx"), tmp_path / "out.onnx"]
    code, found = run(command, *(again if command == "apply" else [composed]), "--threads", threads)
    assert code == 2
    assert f"--threads {threads}:" in found["stderr"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threads": 10**9}, "the recorded number of threads is 1000000000: say --threads"),
        ({"threads": "4"}, "the recorded number of threads is '4'"),
        ({"threads": True}, "the recorded number of threads is True"),
        ({"provider": "rocm"}, "the recorded provider is 'rocm': say --provider"),
    ],
)
def test_a_recorded_deployment_that_makes_no_sense(
    composed: Path, tmp_path: Path, run: Run, changes: dict[str, Any], message: str
) -> None:
    recording = read_recording(actions_file(composed))
    file = replace(recording, deployment={**recording.deployment, **changes}).write(tmp_path / "actions.json")
    code, found = run("apply", file, composed.with_name("model.onnx"), tmp_path / "out.onnx")
    assert code == 2
    assert message in found["stderr"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"settings": {"allow_spining": False}}, "did you mean allow_spinning"),
        ({"settings": {"threads": 10**9}}, "at most 1024"),
        ({"settings": {"cudnn_conv_algo_search": "ALL"}}, "unknown cudnn_conv_algo_search 'ALL'"),
        ({"refused": ["GeluFusion; rm"]}, "ONNX Runtime has no optimiser named"),
    ],
)
def test_recorded_choices_are_of_a_closed_list(changes: dict[str, Any], message: str) -> None:
    usual = {"rule": "set x", "kind": "deployment", "refused": [], "settings": {"allow_spinning": False}}
    assert RecordedStep.from_json(usual).settings == {"allow_spinning": False}
    with pytest.raises(UserError, match=f"the step of rule set x: .*{message}"):
        RecordedStep.from_json({**usual, **changes})


def test_more_threads_than_here_may_be_recorded_for_another_machine(composed: Path, tmp_path: Path, run: Run) -> None:
    recording = read_recording(actions_file(composed))
    file = replace(recording, deployment={**recording.deployment, "threads": 16}).write(tmp_path / "actions.json")
    code, found = run("apply", file, composed.with_name("model.onnx"), tmp_path / "out.onnx")
    assert code == 0
    assert found["deployment"]["threads"] == 16
