"""The benchmark of time limits: what a row holds, which runs are repeated, and what counts as late or slower."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks import time_limits
from benchmarks.time_limits import Arguments, is_slower, keeps_limit, known_rows, run, run_of, table_of
from graph_rewrite.errors import MachineError, UserError


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The models that were optimised; each result says 1.5 and is judged 1.25."""
    made: list[str] = []

    def command(words: Sequence[str], folder: Path, fine: Sequence[int]) -> dict[str, Any]:
        if words[0] == "check":
            return {"speedup": 1.25, "speedup_ci95": [1.2, 1.3]}
        made.append(words[1])
        return {
            "speedup": 1.5, "speedup_ci95": [1.4, 1.6], "baseline_ms": 3.0, "latency_ms": 2.0, "verified": True,
            "max_rel_error": 0.0, "measurements": 7, "rewrites": [{"rule": "A", "sites": 2, "where": ["x"]}],
            "actions": {"steps": []},
        }  # fmt: skip

    monkeypatch.setattr(time_limits, "_command", command)
    monkeypatch.setattr(time_limits.zoo, "export", lambda model, **given: Path(model, *map(str, given.items())))
    return made


@pytest.fixture
def arguments(tmp_path: Path) -> Arguments:
    return Arguments(models=("a", "b"), limits=(1.0, 2.0), out=tmp_path / "rows.json")


def test_a_run_that_is_in_the_file_is_not_repeated(calls: list[str], arguments: Arguments) -> None:
    console = Console(quiet=True)
    run(replace(arguments, limits=(1.0,)), console)
    assert calls == ["a", "b"]
    rows = run(arguments, console)
    assert calls == ["a", "b", "a", "b"]
    assert [(row["model"], row["limit_s"]) for row in rows] == [("a", 1.0), ("b", 1.0), ("a", 2.0), ("b", 2.0)]
    assert rows == known_rows(arguments.out)
    run(replace(arguments, threads=2, models=("a",), limits=(1.0,)), console)
    assert len(known_rows(arguments.out)) == 5
    assert len(run(replace(arguments, again=True), console)) == 5
    assert len(calls) == 9
    assert len(run(replace(arguments, shipped=True, models=("a",), limits=(1.0,)), console)) == 6


def test_a_model_of_the_zoo_may_have_parameters(calls: list[str], arguments: Arguments) -> None:
    uri = "zoo://bert-tiny?seq_len=16"
    (row,) = run(replace(arguments, models=(uri,), limits=(1.0,)), Console(quiet=True))
    assert row["model"] == uri
    assert calls == ["bert-tiny/('seq_len', '16')"]


def test_the_judgement_counts_in_the_mean(calls: list[str], arguments: Arguments) -> None:
    table = table_of(run(arguments, Console(quiet=True)))
    with (console := Console(width=250)).capture() as printed:
        console.print(table)
    means = [line for line in printed.get().splitlines() if "geometric mean of 2" in line]
    assert len(means) == 2
    assert all("1.250" in line and "0 late" in line and "0 slower" in line for line in means)


@pytest.mark.parametrize(
    ("limit", "wall", "kept"), [(30, 34.9, True), (30, 35.1, False), (600, 659, True), (600, 661, False)]
)
def test_lateness(limit: float, wall: float, kept: bool) -> None:
    assert keeps_limit({"limit_s": limit, "wall_s": wall}) is kept


def test_slower_is_what_the_whole_interval_says() -> None:
    assert is_slower({"judged_ci95": [0.97, 0.999]})
    assert not is_slower({"judged_ci95": [0.97, 1.001]})


@pytest.mark.parametrize("content", ["", "[]", json.dumps({"machine": "another", "rows": []})])
def test_a_file_that_is_not_ours_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "rows.json").write_text(content)
    with pytest.raises(UserError, match="choose another --out"):
        known_rows(tmp_path / "rows.json")


def test_a_command_that_fails_tells_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "damaged.onnx").write_bytes(b"\xff")
    monkeypatch.setattr(time_limits.zoo, "export", lambda _: tmp_path / "damaged.onnx")
    with pytest.raises(MachineError, match=r"rewritegym optimize ended with 2: .*damaged\.onnx"):
        run_of("damaged", 1, 1.0, False)
