"""Reports: a row per model and agent, plots that are written."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.report import compare, setting_name, zoo_table


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


def file_of(threads: int, standard: bool, **speedups: float) -> dict[str, Any]:
    memory = {"before": {"weights": 100, "peak": 200}, "after": {"weights": 250, "peak": 300}}
    entry = {"baseline_ms": 12.5, "max_rel_error": 2e-6, "seconds": 30.0, "memory": memory}
    histogram = {"refuse X": 1, "A": 9, "B": 8, "C": 7, "D": 6, "E": 5}
    return {
        "setting": {"threads": threads, "standard_ops_only": standard},
        "results": [
            {**entry, "model": m, "speedup": s, "speedup_ci95": [s - 0.1, s + 0.1], "rule_histogram": histogram}
            for m, s in speedups.items()
        ],
    }


def test_the_zoo_has_a_row_per_model_and_a_column_per_file() -> None:
    files = [file_of(1, False, slow=1.1, fast=2.0), file_of(2, True, slow=1.0, other=3.0)]
    assert [setting_name(entry["setting"]) for entry in files] == ["1 thread", "2 threads, standard operators"]
    table = zoo_table(files).splitlines()
    assert [line.split(" | ")[0] for line in table[2:]] == ["| fast", "| slow"]
    assert "2.00 (1.90 to 2.10) | not run | 2e-06 | x2.50 | x1.50 | 30 s | A, B, C, D |" in table[2]
    assert "1.10 (1.00 to 1.20) | the original |" in table[3]


def test_files_of_the_zoo_are_written(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    for path, found in zip(paths, (file_of(1, False, m=1.2), file_of(2, False, m=1.3)), strict=True):
        path.write_text(json.dumps(found))
    command = [sys.executable, "-m", "benchmarks.report", "zoo", *map(str, paths), "--out", str(tmp_path / "out" / "x")]
    subprocess.run(command, check=True, cwd=Path(__file__).parents[2])
    assert sorted(p.suffix for p in (tmp_path / "out").iterdir()) == [".md", ".png"]
