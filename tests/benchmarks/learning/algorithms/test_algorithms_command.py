"""The command of the tabular benchmark: rows, going on, pages, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.learning.algorithms.__main__ import digest, main
from benchmarks.learning.algorithms.curves import curve
from benchmarks.learning.algorithms.report import page, summary, tables
from benchmarks.learning.algorithms.rows import LearningResults, ScoredWindows, TrainingRow
from benchmarks.learning.algorithms.scores import normalised
from tests.agents.tabular.planted import OPTIMA, planted_table

QUICK = ["--steps", "512", "--evaluations", "2", "--hidden", "8", "--layers", "1", "--held-out", "three"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("planted") / "table.npz"
    planted_table().save(path)
    return path


def called(table: Path, out: Path, *arguments: str) -> int:
    return main(["--table", str(table), "--out", str(out), *QUICK, *arguments])


def test_results_page_and_plot_are_written(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "quick.json"
    names = ["random", "best-first", "cloning", "ppo", "ppo-no-graph"]
    assert called(table, out, "--seeds", "2", "--json", "--algorithms", *names) == 0
    told = json.loads(capsys.readouterr().out)
    results = LearningResults.read(out)
    assert told == json.loads(json.dumps(summary(results)))
    assert [one["algorithm"] for one in told["algorithms"]] == names == results.algorithms
    assert all(one["trainings"] == 2 for one in told["algorithms"])
    scores = {one["algorithm"]: one["score"] for one in told["algorithms"]}
    assert scores["best-first"] == {"value": 1.0, "low": 1.0, "high": 1.0}
    assert scores["random"]["value"] < 0.8
    assert told["possible"] == pytest.approx(np.mean(OPTIMA))
    assert [(one["with"], one["without"], one["pairs"]) for one in told["components"]] == [
        ("ppo", "ppo-no-graph", 2), ("ppo", "cloning", 2),
    ]  # fmt: skip
    assert not any(one["claimed"] for one in told["components"])  # two seeds are too few
    (row,) = [row for row in results.of("ppo") if row.seed == 1]
    assert [steps for steps, _, _ in row.curve] == [0, 256, 512]
    assert row.curve[-1][2] == row.returns
    assert results.of("random")[0].curve == ()
    assert [at for at, _ in curve(results, "ppo")] == [0, 256, 512]
    assert [at for at, _ in curve(results, "random")] == [0]
    text = out.with_suffix(".md").read_text("utf-8")
    assert text == page(results, "quick.png")
    assert (tmp_path / "new" / "quick-summary.md").read_text("utf-8") == tables(results)
    assert tables(results).rstrip("\n") in text
    assert "| best-first | 1.00 (1.00 to 1.00) | 1.00 | 0.4000 | - |" in text
    assert out.with_suffix(".png").read_bytes().startswith(b"\x89PNG")


def test_it_goes_on_where_it_stopped(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "quick.json"
    assert called(table, out, "--seeds", "1", "--no-figures", "--algorithms", "random", "cloning") == 0
    before = out.read_text("utf-8")
    capsys.readouterr()
    assert called(table, out, "--seeds", "1", "--no-figures", "--algorithms", "random", "cloning") == 0
    assert "1 of" not in capsys.readouterr().err
    assert out.read_text("utf-8") == before
    assert called(table, out, "--seeds", "2", "--no-figures", "--algorithms", "cloning", "reinforce") == 0
    assert "1 of 3: reinforce, fixed, seed 0" in capsys.readouterr().err
    results = LearningResults.read(out)
    assert [row.key for row in results.rows] == [
        ("random", "fixed", 0), ("cloning", "fixed", 0), ("reinforce", "fixed", 0), ("cloning", "fixed", 1),
        ("reinforce", "fixed", 1),
    ]  # fmt: skip
    assert results.rows[0] == LearningResults.read(out).rows[0]
    assert not out.with_suffix(".md").exists()


def test_a_training_that_is_broken_off_loses_no_row(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_off.py").write_text("def learn(run):\n    raise KeyboardInterrupt\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "quick.json"
    assert called(table, out, "--algorithms", "random", "broken_off:learn", "--seeds", "3") != 0
    assert [row.key for row in LearningResults.read(out).rows] == [("random", "fixed", 0)]


def test_all_families_are_left_out_in_turn(table: Path, tmp_path: Path) -> None:
    out = tmp_path / "folds.json"
    assert called(table, out, "--folds", "3", "--seeds", "1", "--algorithms", "best-first", "random") == 0
    results = LearningResults.read(out)
    assert [split.name for split in results.splits] == ["fold0", "fold1", "fold2"]
    assert {family for split in results.splits for family in split.families} == {"one", "two", "three"}
    assert len(results.of("best-first")) == 3
    assert summary(results)["algorithms"][0]["score"]["value"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--algorithms", "sarsa"], "no algorithm 'sarsa'"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--steps", "0"], "steps must be at least 1"),
        (["--hidden", "30"], "multiple of the 4 attention heads"),
        (["--held-out", "unheard"], "no window of the table is of"),
        (["--folds", "9"], "2 to 3 folds"),
        (["--table", "/nowhere.npz"], "cannot be read"),
    ],
)
def test_wrong_arguments_are_told(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    out = tmp_path / "quick.json"
    assert called(table, out, *arguments) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not out.exists()


@pytest.mark.parametrize("changed", [["--steps", "600"], ["--held-out", "one"], ["--learning-rate", "0.1"]])
def test_a_file_of_other_settings_is_left_alone(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], changed: list[str]
) -> None:
    out = tmp_path / "quick.json"
    assert called(table, out, "--algorithms", "random", "--seeds", "1", "--no-figures") == 0
    before = out.read_bytes()
    assert called(table, out, "--algorithms", "random", "--seeds", "2", *changed) == 2
    assert "name another file with --out" in " ".join(capsys.readouterr().err.split())
    assert out.read_bytes() == before


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": "other", "version": 1}', '{"format": "rewritegym.learning"}']
)
def test_a_damaged_file_is_told(table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str) -> None:
    out = tmp_path / "quick.json"
    out.write_text(text)
    assert called(table, out, "--algorithms", "random") == 2
    assert "no results file of the tabular benchmark" in " ".join(capsys.readouterr().err.split())
    assert out.read_text() == text


@pytest.mark.parametrize(
    ("seeds", "worth", "claimed"), [(5, 0.2, True), (4, 0.2, False), (5, 0.0, False), (5, -0.2, False)]
)
def test_a_component_is_claimed_by_its_interval_and_enough_seeds(seeds: int, worth: float, claimed: bool) -> None:
    random, split = np.random.default_rng(0), ScoredWindows("fixed", (0, 1, 2), ("a", "a", "b"), (1.0, 1.0, 1.0))
    results = LearningResults({"settings": {"steps": 1}}, (split,))
    for name, more in (("ppo", worth), ("ppo-no-graph", 0.0)):
        for seed in range(seeds):
            returns = tuple((0.5 + more + 0.05 * random.normal(size=3)).tolist())
            results.rows.append(TrainingRow(name, "fixed", seed, 1, 1.0, 0.5, returns, ()))
    (found,) = summary(results)["components"]
    assert (found["pairs"], found["claimed"]) == (seeds, claimed)
    assert found["difference"]["value"] == pytest.approx(worth, abs=0.1)


def test_scores_are_shares_of_the_optimum() -> None:
    returns: list[Any] = [0.25, 0.5, -0.1, -2.0, 0.3]
    assert normalised(returns, [0.5, 0.5, 0.2, 0.5, 0.01]).tolist() == [0.5, 1.0, -0.5, -1.0]
    assert normalised([returns, returns], [0.5, 0.5, 0.2, 0.5, 0.01]).shape == (2, 4)


def test_equal_tables_have_one_digest() -> None:
    assert digest(planted_table()) == digest(planted_table()) != digest(planted_table(seed=1))
