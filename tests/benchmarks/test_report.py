"""Reports: a row per model and agent, plots that are written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import compare


def run_of(agent: str, *speedups: float) -> dict[str, Any]:
    entry = {"measurements": 10, "seconds": 1.0, "max_rel_error": 1e-6, "rewrites": [{"rule": "R", "sites": 2}]}
    results = [{**entry, "agent": agent, "speedup": s, "speedup_ci95": [s - 0.01, s + 0.01]} for s in speedups]
    curve = [[10, 1.0, 1.0], [20, 2.0, 1.1]]
    return {"model": "zoo://m", "provider": "cpu", "results": results, "training": {"curve": curve}}


def test_compare_has_median_and_extremes_per_agent() -> None:
    table = compare([run_of("a", 1.0, 1.2, 1.1), run_of("b", 1.5)]).splitlines()
    assert len(table) == 4
    assert "| a | 3 | 1.100 | 1.000 | 1.200 |" in table[2]
    assert "| b | 1 | 1.500 |" in table[3]
    assert "R x2" in table[3]


@pytest.mark.parametrize(("kind", "suffixes"), [("compare", [".json", ".md", ".png"]), ("curves", [".png"])])
def test_files_are_written(tmp_path: Path, kind: str, suffixes: list[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "result.json").write_text(json.dumps(run_of("a", 1.1)))
    command = [
        sys.executable,
        "-m",
        "benchmarks.report",
        kind,
        str(tmp_path / "run"),
        "--out",
        str(tmp_path / "out" / "x"),
    ]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    assert sorted(p.suffix for p in (tmp_path / "out").iterdir()) == suffixes
