"""The benchmark of whole models: what it writes, and going on where it stopped."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import benchmarks.end_to_end as benchmark
from benchmarks.end_to_end import Arguments, again, known_results, run, table
from graph_rewrite.task.problem import open_problem
from tests.envs.fakes import count_operators, write_tower


@pytest.fixture
def quiet() -> Console:
    return Console(quiet=True)


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Arguments:
    """Two towers, measured by counting operators."""
    monkeypatch.setenv("REWRITEGYM_WORKSPACE", str(tmp_path / "workspace"))

    def opened(uri: str, **options: object) -> object:
        return open_problem(uri, **{**options, "meter": count_operators})  # type: ignore[arg-type]

    monkeypatch.setattr(benchmark, "open_problem", opened)
    models = tuple(f"file:{write_tower(tmp_path / f'tower{n}.onnx', n)}" for n in (1, 2))
    return Arguments(models=models, agent="greedy", measurements=20, seconds=20.0, out=tmp_path / "found.json")


def test_a_row_per_model_with_what_the_result_costs(arguments: Arguments, quiet: Console) -> None:
    found = run(arguments, quiet)
    assert json.loads(arguments.path.read_text()) == found
    assert [row["model"] for row in found["results"]] == list(arguments.models)
    for row in found["results"]:
        assert row["verified"]
        assert row["speedup"] > 1.0
        assert row["speedup_ci95"][0] <= row["speedup"] <= row["speedup_ci95"][1]
        assert row["memory"]["after"]["weights"] > 0
        assert sum(row["rule_histogram"].values()) == sum(rewrite["sites"] for rewrite in row["rewrites"])
    assert table(found).row_count == 2


def test_resume_takes_up_where_it_stopped(
    arguments: Arguments, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = run(replace(arguments, models=arguments.models[:1]), quiet)
    opened: list[str] = []
    real = benchmark.row_of
    monkeypatch.setattr(benchmark, "row_of", lambda model, *rest: opened.append(model) or real(model, *rest))
    found = run(replace(arguments, resume=True), quiet)
    assert opened == [arguments.models[1]]
    assert found["results"][0] == first["results"][0]
    assert len(found["results"]) == 2


def test_results_are_measured_again_without_a_search(arguments: Arguments, quiet: Console) -> None:
    first = run(arguments, quiet)
    stored = json.loads(arguments.path.read_text())
    stored["results"][0] |= {"speedup": 1.01, "speedup_ci95": [0.9, 1.1]}
    stored["results"][1]["actions"]["steps"][0]["rule"] = "NoSuchRule"
    arguments.path.write_text(json.dumps(stored))
    found = again(replace(arguments, models=()), quiet)
    assert json.loads(arguments.path.read_text()) == found
    assert found["results"][0]["speedup"] == first["results"][0]["speedup"]
    assert found["results"][0]["searched"] == {"speedup": 1.01, "speedup_ci95": [0.9, 1.1]}
    assert found["results"][1] == stored["results"][1]  # the rewrite is not offered: what was there stays
    twice = again(replace(arguments, models=arguments.models[:1]), quiet)
    assert twice["results"][0]["searched"]["speedup"] == 1.01


def test_nothing_to_measure_again(arguments: Arguments, quiet: Console) -> None:
    with pytest.raises(ValueError, match="no results to measure again"):
        again(arguments, quiet)


def test_a_model_that_cannot_be_measured_is_left_for_another_day(
    arguments: Arguments, quiet: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(uri: str, **options: object) -> object:
        problem = open_problem(uri, **{**options, "meter": count_operators})  # type: ignore[arg-type]
        if "tower1" in uri:
            problem.meter.failing = dict.fromkeys((n.op for n in problem.model.graph.nodes.values()), "hang")  # type: ignore[attr-defined]
        return problem

    monkeypatch.setattr(benchmark, "open_problem", failing)
    found = run(arguments, quiet)
    assert [row["model"] for row in found["results"]] == [arguments.models[1]]
    json.loads(arguments.path.read_text(), parse_constant=pytest.fail)


def test_results_of_other_settings_are_not_mixed_in(arguments: Arguments, quiet: Console) -> None:
    run(replace(arguments, models=arguments.models[:1]), quiet)
    with pytest.raises(ValueError, match="made with another threads"):
        known_results(replace(arguments, resume=True, threads=2))
    arguments.path.write_text("[1, 2]")
    with pytest.raises(ValueError, match="no results file of this benchmark"):
        known_results(replace(arguments, resume=True))
    assert known_results(arguments) == []


def test_the_file_is_named_after_what_was_run() -> None:
    assert Arguments(agent="greedy:beam=2", threads=2).path.name == "end_to_end-greedy-beam-2-t2.json"
    assert Arguments(standard_ops_only=True).path.name == "end_to_end-regional-t1-standard.json"
