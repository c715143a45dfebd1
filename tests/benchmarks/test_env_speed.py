"""The benchmark of the environment runs, and prints what scripts rely on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.envs.fakes import write_tower

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_prints_one_json_object_and_nothing_else(tmp_path: Path) -> None:
    model = write_tower(tmp_path / "tower.onnx")
    command = [
        sys.executable,
        "-m",
        "benchmarks.env_speed",
        "--model",
        f"file:{model}",
        "--episodes",
        "1",
        "--json",
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    figures = json.loads(done.stdout)
    assert list(figures) == ["step_ms_p50", "step_ms_p95", "scratch_ms", "policy_ms", "extra_env_mb", "depth_ratio"]
    assert figures.pop("depth_ratio") is None, "a file has no number of layers"
    assert all(value >= 0 for value in figures.values())
    assert figures["step_ms_p50"] <= figures["step_ms_p95"]
