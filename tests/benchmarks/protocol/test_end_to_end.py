"""The command from end to end on a tiny model, with real processes and clocks; peers are planted."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from benchmarks import results
from benchmarks.protocol import ort_runner, tools
from benchmarks.protocol.contestants import Contestant
from benchmarks.protocol.table import FIELDS
from graph_rewrite.errors import UserError
from tests.envs.fakes import write_tower


def basic(model: Path, folder: Path, threads: int) -> Contestant:
    return Contestant("ort-basic", ort_runner.MODULE, model, {"optimization_level": "basic"})


def missing(model: Path, folder: Path, threads: int) -> Contestant:
    raise ModuleNotFoundError("openvino is not installed")


@pytest.fixture
def arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> results.Arguments:
    monkeypatch.setattr(tools, "known_peers", lambda: {"ort-basic": basic, "openvino": missing})
    model = str(write_tower(tmp_path / "tower.onnx"))
    return results.Arguments(
        models=(model,), agents=("greedy",), budget=(2.0,), seeds=1, aa=1, sessions=2, rounds=2, patience=0.0,
        machine="planted", runs=tmp_path / "runs", out=tmp_path / "planted" / "cpu-t1.json",
    )  # fmt: skip


@pytest.mark.slow
def test_a_table_is_made_and_not_made_twice(arguments: results.Arguments, monkeypatch: pytest.MonkeyPatch) -> None:
    console = Console(quiet=True)
    rows = results.run(arguments, console)
    greedy, peer, gone, original = rows
    assert (greedy["agent"], greedy["kind"], greedy["seed"], greedy["budget_s"]) == ("greedy", "agent", 0, 2.0)
    assert greedy["verified"]
    assert greedy["speedup"] > 0.0
    assert greedy["seconds"] > 0.0
    assert (peer["agent"], peer["kind"], peer["seed"], peer["verified"]) == ("ort-basic", "peer", None, True)
    assert peer["speedup_ci95"][0] < peer["speedup"] < peer["speedup_ci95"][1]
    assert (gone["agent"], gone["verified"], gone["failure"]) == ("openvino", False, "openvino is not installed")
    assert (original["agent"], original["kind"], original["max_rel_error"]) == ("original", "control", 0.0)
    assert all(set(FIELDS) <= set(row) for row in rows)
    stored = json.loads(arguments.path.read_text())
    assert set(stored) == {"machine", "versions", "commit", "protocol", "rows"}
    assert stored["rows"] == rows
    assert stored["protocol"]["sessions"] == 2
    assert stored["protocol"]["original_against_itself"]["judgements"] == 1
    assert stored["machine"]["name"] == "planted"

    def never(*values: object, **options: object) -> None:
        raise AssertionError("a process is started")

    for name in ("side_by_side", "ProcessSeat", "write_inputs"):
        monkeypatch.setattr(tools, name, never)
    assert results.run(arguments, console) == rows


def test_a_mistake_is_told_before_any_search(arguments: results.Arguments) -> None:
    console = Console(quiet=True)
    with pytest.raises(UserError, match="berd: neither a file nor in the zoo"):
        results.run(replace(arguments, models=("swin-t", "berd")), console)
    with pytest.raises(UserError, match="there is no control"):
        results.run(replace(arguments, controls=("none",)), console)
    with pytest.raises(UserError, match="--threads 0"):
        results.run(replace(arguments, threads=0), console)


def test_files_are_named_by_machine_threads_and_batch(arguments: results.Arguments) -> None:
    plain = replace(arguments, out=None)
    assert plain.path.parts[-3:] == ("results", "planted", "cpu-t1.json")
    assert replace(plain, threads=2, batch=8).path.name == "cpu-t2-b8.json"
    assert replace(plain, threads=2).folder.name == "cpu-t2"
    assert replace(plain, controls=("all",)).plan().controls == tuple(results.CONTROLS)
