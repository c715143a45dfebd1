"""The command that makes tables of windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.learning.window_table import description, main
from envs.window import WindowTable
from envs.window.table import SHIPPED
from graph_rewrite.experience.exchange import export
from tests.envs.window.drawn import DrawnTimer, convolutions, drawn_labels


def test_a_table_is_made_of_an_export(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = drawn_labels(convolutions(tmp_path), tmp_path, DrawnTimer())
    export(tmp_path / "drawn.sqlite3", tmp_path / "drawn.jsonl.xz")
    assert main([str(tmp_path / "drawn.jsonl.xz"), "--out", str(tmp_path / "a" / "t.npz")]) == 0
    told = json.loads(capsys.readouterr().out)
    table = WindowTable.load(tmp_path / "a" / "t.npz")
    assert told["windows"] == len({label.window["fingerprint"] for label in labels}) == len(table.windows)
    assert told["chains"] + told["left_out"] == len(
        {(label.window["fingerprint"], *label.body["steps"]) for label in labels}
    )
    assert told["bytes"] == (tmp_path / "a" / "t.npz").stat().st_size


def test_no_experience_is_no_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.xz"), "--out", str(tmp_path / "t.npz")]) != 0
    assert "cannot be read" in capsys.readouterr().err
    assert not (tmp_path / "t.npz").exists()


def test_the_table_that_ships_is_large_enough_to_learn_from() -> None:
    told = description(WindowTable.load(SHIPPED))
    assert told["windows"] >= 300
    assert told["with_choice"] >= 150
    assert len(told["families"]) >= 8
    assert told["steps"] == told["states"] - told["windows"]
    assert SHIPPED.stat().st_size < 5 << 20
