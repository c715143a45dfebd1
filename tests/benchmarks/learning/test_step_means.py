"""The means that ship are made of tables of one runtime each: those of ONNX Runtime, and what others save beyond it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from agents.effects.means_file import load_means
from benchmarks.learning import step_means
from envs.window.table import SHIPPED, WindowTable
from graph_rewrite.latency.device import machine_kind

DEVICE = "One, cpu family 99 []"


def timed_in(provider: str, path: Path, other: str = "") -> Path:
    """Write the shipped table as if it had been timed with a provider, its first window with another one."""
    table = WindowTable.load(SHIPPED)
    windows = [replace(window, provider=provider, device=DEVICE) for window in table.windows]
    windows[0] = replace(windows[0], provider=other or provider)
    replace(table, windows=tuple(windows)).save(path)
    return path


def test_another_runtime_s_table_does_not_change_the_means_of_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, both, table = tmp_path / "alone.json", tmp_path / "both.json.xz", timed_in("openvino", tmp_path / "o.npz")
    assert step_means.main(["--tables", str(SHIPPED), "--out", str(alone)]) == 0
    assert step_means.main(["--tables", str(SHIPPED), str(table), "--out", str(both)]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    kind = machine_kind("openvino", DEVICE)
    assert told["steps"][kind] > 1000
    assert load_means(both) == load_means(alone)
    # The same timings as in the means of all: nothing is beyond them but what is drawn towards the general.
    assert load_means(both, kind).here is not None
    assert load_means(both, machine_kind("openvino", "another []")) == load_means(both, kind)


def test_a_table_of_two_runtimes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = timed_in("cpu", tmp_path / "t.npz", other="openvino")
    assert step_means.main(["--tables", str(table), "--out", str(tmp_path / "m.json")]) == 2
    assert "windows of several runtimes" in capsys.readouterr().err
    assert not (tmp_path / "m.json").exists()
