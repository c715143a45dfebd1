"""The control that searches in both runtimes of the CPU, with planted searches and a planted clock."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from agents.optimization import best_runtime
from benchmarks.protocol import ort_runner
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.searches.process import conducted
from benchmarks.protocol.searches.runs import DONE, MISSING, RESULT, Run
from benchmarks.protocol.table import run_row
from graph_rewrite.errors import MachineError
from graph_rewrite.latency import Latency
from graph_rewrite.latency.files import DeployedFile
from graph_rewrite.task.problem import open_problem
from tests.agents.optimization.planted import PlantedAgent, plant
from tests.envs.fakes import write_tower
from tests.runtimes import needs_openvino


@pytest.fixture
def run(tmp_path: Path) -> Run:
    tower = str(write_tower(tmp_path / "tower.onnx", 2, 16))
    return Run(tower, "best-runtime", "best-runtime", 0, 60.0, kind="control")


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PlantedAgent:
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "work"))
    return plant(monkeypatch, tmp_path / "cache")


def openvino_is(times: float) -> Callable[..., Latency]:
    """Return what times two files: OpenVINO is so many times as fast as ONNX Runtime."""

    def compare(before: DeployedFile, after: DeployedFile, *given: Any, **options: Any) -> Latency:
        speedup = times ** ((after.deployment.provider == "openvino") - (before.deployment.provider == "openvino"))
        return Latency(10.0 / speedup, speedup, (speedup - 0.01, speedup + 0.01), 9, 10.0)

    return compare


@needs_openvino
@pytest.mark.parametrize(("times", "provider"), [(1.5, "openvino"), (0.7, "cpu")])
def test_the_faster_result_is_the_contestant(
    run: Run, agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float, provider: str
) -> None:
    monkeypatch.setattr(best_runtime, "compare_deployed", openvino_is(times))
    found = conducted(run, tmp_path / "run")
    assert (found["status"], found["verified"], found["kept_original"]) == (DONE, True, False)
    assert found["deployment"]["provider"] == provider
    assert [one["provider"] for one in found["runtimes"] if one["chosen"]] == [provider]
    assert len(agent.searched) == 2
    row = run_row(run, found, None)
    assert (row["agent"], row["kind"], row["runtimes"]) == ("best-runtime", "control", found["runtimes"])
    file = tmp_path / "run" / RESULT
    opened = ort_runner.open_runner(Contestant("best-runtime@60/0", ort_runner.MODULE, file), threads=1)
    assert opened.deployment.provider == provider
    problem = open_problem(run.model, provider="cpu")
    value = problem.model.original.types[problem.model.original.inputs[0]]
    (output,) = opened.run({"x": np.zeros(value.shape, np.float32)})
    assert np.isfinite(output).all()


@needs_openvino
@pytest.mark.parametrize(("times", "kept"), [(1.5, False), (0.7, True)])
def test_an_original_that_is_faster_in_openvino_is_a_result(
    run: Run, agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, times: float, kept: bool
) -> None:
    agent.measurements = 0
    monkeypatch.setattr(best_runtime, "compare_deployed", openvino_is(times))
    found = conducted(run, tmp_path / "run")
    assert not found["rewrites"]
    assert found["kept_original"] is kept
    assert (tmp_path / "run" / RESULT).is_file() is not kept


def test_without_openvino_the_control_is_missing(
    run: Run, agent: PlantedAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolve(provider: str) -> str:
        raise MachineError("OpenVINO is not installed")

    monkeypatch.setattr(best_runtime, "resolve_provider", resolve)
    found = conducted(run, tmp_path / "run")
    assert (found["status"], found["reason"]) == (MISSING, "OpenVINO is not installed")
