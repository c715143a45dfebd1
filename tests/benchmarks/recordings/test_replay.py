"""The replay of recorded results: which are found again, and which are lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from agents.conclusion.recordings import recording_of
from agents.core.base import action_of
from benchmarks.recordings import known_results, replay
from graph_rewrite.errors import UserError
from graph_rewrite.task.problem import open_problem
from tests.graph_rewrite.replay.models import write_network

QUIET = Console(quiet=True)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A run's result.json: a recorded result, one by key alone, one of a rule that is gone, one of an e-graph, and an
    original."""
    model = f"file:{write_network(tmp_path / 'network.onnx')}"
    problem = open_problem(model, provider="cpu", cached=False)
    candidate = next(c for c in problem.rewriter.candidates(problem.model.graph) if c.rule == "ComposeTransposes")
    recording = recording_of(problem, [action_of(candidate)], candidate.apply())
    keyed = {"rule": candidate.rule, "description": candidate.description, "sites": candidate.count}

    def row(*rewrites: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"agent": "greedy", "speedup": 1.5, "rewrites": list(rewrites), **more}

    rows = [
        row({**keyed, "key": candidate.key}, actions=recording.to_json()),
        row({**keyed, "key": "of earlier code"}),
        row({"rule": "ComposeTranspose", "description": "ComposeTranspose at x", "sites": 1, "key": "k"}),
        row({"rule": "Extraction", "description": "tree extraction", "sites": 1, "key": "extract"}),
        row(),
    ]
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"model": model, "provider": "cpu", "results": rows}))
    return path


def test_says_which_results_replay(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = replay.run(replay.Arguments(files=(results,)), QUIET)
    assert [one.complete for one in found] == [True, True, False]
    assert [one.is_lost for one in found] == [False, False, True]
    assert "there is no rule ComposeTranspose" in found[2].difference
    assert "nearest: ComposeTransposes" in found[2].difference
    assert replay.table(found).row_count == 3
    monkeypatch.setattr(replay, "LOST", frozenset({(results.name, found[2].model)}))
    assert not found[2].is_lost


def first_of(results: Path) -> dict[str, Any]:
    """Return the first result of the file, with its model."""
    stored = json.loads(results.read_text())
    return {"model": stored["model"], **stored["results"][0]}


@pytest.fixture
def table(results: Path) -> Path:
    """The same rewrites in a file of `benchmarks.results`, below the folder of a machine."""
    more = {"verified": True, "failure": "", "deployment": {"provider": "cpu", "threads": 2}}
    row = {**first_of(results), **more, "agent": "regional"}
    rows = [
        {**row, "seed": 0, "batch": 1},
        {**row, "seed": 1, "speedup": 1.7},
        {**row, "seed": 2, "verified": False},
        {**row, "seed": 3, "failure": "it was not judged"},
        {**row, "seed": 4, "rewrites": [{"rule": "ComposeTransposes", "sites": 1}], "actions": None},
        {**row, "seed": None, "agent": "openvino", "rewrites": [], "actions": None},
    ]
    path = results.parent / "machine" / "cpu-t2.json"
    path.parent.mkdir()
    path.write_text(json.dumps({"machine": "m", "protocol": {}, "rows": rows}))
    path.with_name("cpu-t2-headroom.json").write_text("{}")
    return path


def test_rows_of_a_table_replay_once_where_seeds_agree(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay, "RESULTS", table.parents[1])
    (found,) = replay.run(replay.Arguments(), QUIET)
    assert (found.file, found.agent, found.complete) == ("cpu-t2.json", "regional", True)


def test_the_batch_of_a_row_is_that_of_its_model(table: Path) -> None:
    stored = json.loads(table.read_text())
    row = {**stored["rows"][0], "model": "resnet18", "batch": 8}
    table.write_text(json.dumps({**stored, "rows": [row]}))
    ((model, _),) = replay.results_of(table)
    assert model == "zoo://resnet18?batch=8"


def test_searches_begin_with_the_fastest_row_of_a_table(table: Path) -> None:
    found = list(known_results.recorded(table.parents[1]))
    assert len(found) == 2
    (best,) = known_results.fastest(iter(found))
    assert (best.kind, best.threads, best.speedup) == ("regional", 2, 1.7)
    made = known_results.remembered(best)
    assert made is not None
    assert [step.rule for step in made.recording.steps] == ["ComposeTransposes"]


def test_and_with_what_optimize_found_on_a_machine(results: Path) -> None:
    row = {name: first_of(results)[name] for name in ("model", "actions")} | {"verified": True, "threads": 1}
    rows = [
        {**row, "judged": 1.3},
        {**row, "judged": 1.4},
        {**row, "judged": 1.01},
        {**row, "judged": 9.0, "verified": False},
        {**row, "judged": 1.0, "actions": None},
    ]
    for machine in ("m", "n"):
        file = results.parent / machine / "time-limits.json"
        file.parent.mkdir()
        file.write_text(json.dumps({"machine": machine, "rows": rows}))
    best = known_results.fastest(known_results.optimised(results.parent))
    assert [(one.device, one.kind, one.speedup) for one in best] == [("m", "optimize", 1.4), ("n", "optimize", 1.4)]
    made = known_results.remembered(best[0])
    assert made is not None
    assert made.context["device"] == "m"
    assert list(known_results.recorded(results.parent)) == []


def test_a_known_result_stays_until_a_faster_one_is_found(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored, folder = json.loads(table.read_text()), tmp_path / "known"
    monkeypatch.setattr(known_results, "RESULTS", table.parents[1])

    def written(speedup: float, models: tuple[str, ...] = ()) -> list[float]:
        """Return the speed-ups of the known results after one was found."""
        row = {**stored["rows"][0], "speedup": speedup}
        table.write_text(json.dumps({**stored, "rows": [row]}))
        assert known_results.run(known_results.Arguments(models, folder), QUIET) == 0
        return [one.speedup for one in known_results.known(folder)]

    assert written(1.5) == [1.5]
    assert written(1.7, ("another",)) == [1.5]
    assert written(1.7) == [1.7]
    assert written(1.6) == [1.7]


def test_what_replays_no_more_is_left_out(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_results, "RESULTS", table.parents[1])
    arguments = known_results.Arguments(output=tmp_path / "known")
    assert known_results.run(arguments, QUIET) == 0
    table.unlink()
    (file,) = arguments.output.iterdir()
    stored = json.loads(file.read_text())
    stored["actions"]["steps"][0]["rule"] = "ComposeTranspose"
    file.write_text(json.dumps(stored))
    assert known_results.run(arguments, QUIET) == 1
    assert not list(arguments.output.iterdir())


def test_the_command_fails_where_a_result_is_lost(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["replay", str(results), "--json"])
    assert replay.main() == 1
    assert [one["applied"] for one in json.loads(capsys.readouterr().out)] == [1, 1, 0]


def test_other_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"a": 1}')
    for name in ("other.json", "gone.json"):
        with pytest.raises(UserError, match=name):
            replay.run(replay.Arguments(files=(tmp_path / name,)), QUIET)
