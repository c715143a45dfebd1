"""Comparison of rules in the same windows on two processors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.learning.same_windows import compared, first_steps, main, table
from graph_rewrite.experience import ExperienceStore
from graph_rewrite.experience.exchange import export, labels_of
from tests.graph_rewrite.experience.rows import made_up


def exported(folder: Path, name: str, saved: dict[int, float]) -> Path:
    """Write an export with a first step in each of some windows, which saves so many seconds."""
    store = ExperienceStore(folder / f"{name}.sqlite3")
    for number, seconds in saved.items():
        label, parts = made_up(number, rules=("A",), saved=seconds, shape=(1, 8 + number))
        store.append([label], parts)
    store.close()
    export(store.path, folder / f"{name}.jsonl.xz")
    return folder / f"{name}.jsonl.xz"


def test_rules_are_compared_where_both_timed_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = exported(tmp_path, "one", {0: 1e-3, 1: 2e-3, 2: 3e-3})
    other = exported(tmp_path, "other", {1: 1e-3, 2: 2e-3, 3: 9e-3})
    mine, theirs = (first_steps(labels_of(path)) for path in (one, other))
    assert len(mine) == len(theirs) == 3
    (rule,) = compared(mine, theirs, 2)
    assert (rule.rule, rule.windows) == ("A", 2)
    common = sorted(mine.keys() & theirs.keys())
    assert rule.one == pytest.approx(sum(mine[key] for key in common) / 2)
    assert rule.difference == pytest.approx(sum(theirs[key] - mine[key] for key in common) / 2)
    assert rule.difference < 0.0
    assert rule.difference_ci95[0] <= rule.difference <= rule.difference_ci95[1]
    assert not compared(mine, theirs, 3)
    arguments = ["--one", str(one), "--other", str(other), "--out", str(tmp_path / "same.json")]
    assert main([*arguments, "--windows", "2"]) == 0
    assert (tmp_path / "same.md").read_text() == table([rule], "one", "other")
    assert json.loads((tmp_path / "same.json").read_text())["rules"][0]["windows"] == 2
    assert "| A | 2 |" in capsys.readouterr().out
    assert main([*arguments, "--windows", "9"]) == 2
    assert "lower --windows" in capsys.readouterr().err
