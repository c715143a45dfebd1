"""The clock is the thread's own on a busy machine, and the result says so."""

from pathlib import Path

import pytest

import rewritegym
from agents.optimization.outcome import BUSY
from tests.envs.fakes import write_tower


@pytest.mark.parametrize("load", [0.0, 1e6])
def test_a_change_of_the_clock_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, 0.0, 0.0))
    path = write_tower(tmp_path / "tower.onnx", 1)
    found = rewritegym.optimize(path, time_limit=1, threads=1, provider="cpu", agent="greedy", memory=False)
    assert (BUSY in found.warnings) is (load > 0.0)
