"""Runs and their folders: resume, interruption, failure; and searches that know nothing of earlier ones."""

import json
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.protocol.searches import process as search_process
from benchmarks.protocol.searches import runs
from benchmarks.protocol.searches.process import budget_of, conducted
from benchmarks.protocol.searches.runs import (
    DONE,
    FAILED,
    MISSING,
    OUTCOME,
    RESULT,
    Run,
    carried_out,
    side_by_side,
    uri_of,
)
from graph_rewrite.errors import UserError
from graph_rewrite.latency import MeasurementCache
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.task.problem import Problem
from tests.envs.fakes import count_operators, write_tower

RUN = Run("bert-tiny", "greedy", "greedy", 0, 60.0, 100)


def finished(runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
    outcomes = []
    for run, folder in runs:
        (folder / RESULT).write_text("model")
        outcome = {"status": DONE, "run": run.to_json(), "kept_original": False, "verified": True, "reason": ""}
        (folder / OUTCOME).write_text(json.dumps(outcome))
        outcomes.append(outcome)
    return outcomes


def never(runs: Sequence[tuple[Run, Path]]) -> list[dict[str, Any]]:
    raise AssertionError("it is there already")


def test_a_run_that_is_there_is_not_repeated(tmp_path: Path) -> None:
    first = carried_out([RUN], tmp_path, finished)
    assert carried_out([RUN], tmp_path, never) == first


@pytest.mark.parametrize("change", [{"measurements": 99}, {"threads": 2}, {"agent": "greedy:beam=2"}])
def test_a_run_with_other_settings_is_another(tmp_path: Path, change: dict[str, Any]) -> None:
    carried_out([RUN], tmp_path, finished)
    with pytest.raises(AssertionError):
        carried_out([replace(RUN, **change)], tmp_path, never)


@pytest.mark.parametrize("damage", ["no model", "no outcome", "half an outcome", "failed"])
def test_what_an_interrupted_or_failed_run_left_is_removed(tmp_path: Path, damage: str) -> None:
    carried_out([RUN], tmp_path, finished)
    folder = tmp_path / RUN.place
    (folder / "left-over").write_text("x")
    if damage == "no model":
        (folder / RESULT).unlink()
    elif damage == "no outcome":
        (folder / OUTCOME).unlink()
    elif damage == "half an outcome":
        (folder / OUTCOME).write_text((folder / OUTCOME).read_text()[:40])
    else:
        (folder / OUTCOME).write_text(json.dumps(runs.failed(RUN, "killed")))
    assert carried_out([RUN], tmp_path, finished)[RUN]["status"] == DONE
    assert not (folder / "left-over").exists()


def test_runs_have_folders_and_names_of_their_own() -> None:
    others = [replace(RUN, seed=1), replace(RUN, budget_s=120.0), replace(RUN, name="taso"), replace(RUN, model="bert")]
    assert len({run.place for run in (RUN, *others)}) == 5
    assert len({run.contestant for run in (RUN, *others[:3])}) == 4
    assert Run.from_json(json.loads(json.dumps(RUN.to_json()))) == RUN


def test_the_budget_is_that_of_search_and_conclusion_together() -> None:
    budget = budget_of(RUN)
    assert budget.overtime_s is not None
    assert budget.seconds + budget.overtime_s == pytest.approx(60.0)
    assert budget.measurements == 100
    assert budget_of(replace(RUN, measurements=None)).measurements >= 10**9
    long = budget_of(replace(RUN, budget_s=600.0))
    assert (long.seconds, long.overtime_s) == (510.0, 90.0)


def test_the_batch_is_a_parameter_of_the_model() -> None:
    assert uri_of("squeezenet", 1) == "zoo://squeezenet"
    assert uri_of("squeezenet", 8) == "zoo://squeezenet?batch=8"


def test_a_process_that_breaks_is_a_failure_with_its_last_words(tmp_path: Path, monkeypatch: Any) -> None:
    script = tmp_path / "broken.py"
    script.write_text("import sys; sys.exit('no memory is left')")
    monkeypatch.setattr(sys, "executable", _python(script, tmp_path))
    found = side_by_side([(RUN, _folder(tmp_path))], [()])[0]
    assert found["status"] == FAILED
    assert found["reason"] == "it ended with 1: no memory is left"


def test_a_process_that_hangs_is_killed(tmp_path: Path, monkeypatch: Any) -> None:
    script, trace = tmp_path / "slow.py", tmp_path / "pid"
    script.write_text(
        f"import os, time, pathlib; pathlib.Path({str(trace)!r}).write_text(str(os.getpid())); time.sleep(60)"
    )
    monkeypatch.setattr(sys, "executable", _python(script, tmp_path))
    monkeypatch.setattr(runs, "LIMIT_S", 1.0)
    found = side_by_side([(replace(RUN, budget_s=0.0), _folder(tmp_path))], [()])[0]
    assert found["status"] == FAILED
    assert "killed after 1 s" in found["reason"]
    if trace.exists():
        with pytest.raises(ProcessLookupError):
            os.kill(int(trace.read_text()), signal.SIGCONT)


TELLING = """
import json, os, pathlib, sys, tempfile, time
folder = pathlib.Path(sys.argv[-1])
seen = {"cores": sorted(os.sched_getaffinity(0)), "temporary": tempfile.gettempdir(), "began": time.time()}
time.sleep(0.5)
(folder / "found.json").write_text(json.dumps(seen | {"ended": time.time()}))
"""


def test_searches_side_by_side_have_cores_and_locks_of_their_own(tmp_path: Path, monkeypatch: Any) -> None:
    script = tmp_path / "telling.py"
    script.write_text(TELLING)
    monkeypatch.setattr(sys, "executable", _python(script, tmp_path))
    places = [_folder(tmp_path, f"run-{seed}") for seed in (0, 1)]
    cores = [(core,) for core in sorted(os.sched_getaffinity(0))[:2]]
    pair = [(replace(RUN, seed=seed), place) for seed, place in enumerate(places)]
    found = side_by_side(pair, [cores[0], cores[-1]])
    assert [one["cores"] for one in found] == [list(cores[0]), list(cores[-1])]
    assert max(one["began"] for one in found) < min(one["ended"] for one in found)
    assert [one["temporary"] for one in found] == [str(place / "temporary") for place in places]
    assert not any((place / "temporary").exists() for place in places)
    alone = side_by_side([(RUN, _folder(tmp_path, "alone"))], cores)
    assert alone[0]["temporary"] not in [one["temporary"] for one in found]


def test_ctrl_c_ends_all_searches(tmp_path: Path, monkeypatch: Any) -> None:
    script = tmp_path / "slow.py"
    script.write_text("import os, pathlib, sys, time\n"
                      "pathlib.Path(sys.argv[-1], 'pid').write_text(str(os.getpid())); time.sleep(60)")  # fmt: skip
    monkeypatch.setattr(sys, "executable", _python(script, tmp_path))
    places = [_folder(tmp_path, f"run-{seed}") for seed in (0, 1)]

    def interrupt(number: int, frame: Any) -> None:
        if all((place / "pid").exists() and (place / "pid").read_text() for place in places):
            raise KeyboardInterrupt
        signal.setitimer(signal.ITIMER_REAL, 0.05)

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            side_by_side([(replace(RUN, seed=seed), place) for seed, place in enumerate(places)], [(), ()])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    for place in places:
        with pytest.raises(ProcessLookupError):
            os.kill(int((place / "pid").read_text()), signal.SIGCONT)


def _folder(tmp_path: Path, name: str = "run") -> Path:
    folder = tmp_path / name
    folder.mkdir()
    return folder


def _python(script: Path, tmp_path: Path) -> str:
    """An interpreter that runs a script whatever it is asked."""
    path = tmp_path / "python"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{script}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def tower(tmp_path: Path) -> str:
    return str(write_tower(tmp_path / "tower.onnx"))


def test_a_search_leaves_no_trace_for_later_ones(tower: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a latency nor a time of a window is found or left on disk."""
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path / "cache"))
    cache = MeasurementCache()
    cache.put({"known": 1}, {"ms": 1.0})
    cache.close()
    before, seen = default_cache_path().read_bytes(), list[Path]()
    search = search_process.make_agent

    def noting(spec: str) -> Any:
        seen.append(default_cache_path())
        assert MeasurementCache().get({"known": 1}) is None
        MeasurementCache().put({"new": 1}, {"ms": 1.0})
        return search(spec)

    monkeypatch.setattr(search_process, "make_agent", noting)
    for seed in (0, 1):
        folder = tmp_path / str(seed)
        found = conducted(Run(tower, "greedy", "greedy", seed, 30.0), folder, count_operators)
        assert found["status"] == DONE
        assert found["verified"]
        assert found["rewrites"]
        assert (folder / RESULT).is_file()
        assert found["search"]["speedup"] > 1.0
    assert len(set(seen)) == 2
    assert not any(path.exists() for path in seen)
    assert default_cache_path() == tmp_path / "cache" / "latency.sqlite3"
    assert default_cache_path().read_bytes() == before


@pytest.mark.parametrize("agent", ["ppo", "replay"])
def test_an_agent_that_cannot_run_on_a_model_says_why(
    tower: str, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none_shipped(spec: str) -> Any:
        raise UserError("no result is recorded, and no checkpoint comes with the project")

    monkeypatch.setattr(search_process, "make_agent", none_shipped)
    found = conducted(Run(tower, agent, agent, 0, 5.0), tmp_path, count_operators)
    assert found["status"] == MISSING
    assert "no result is recorded" in found["reason"]
    assert not (tmp_path / RESULT).exists()


def test_an_original_that_is_kept_leaves_no_file(tower: str, tmp_path: Path) -> None:
    found = conducted(Run(tower, "greedy", "greedy", 0, 30.0, 0), tmp_path, count_operators)
    assert found["kept_original"]
    assert not (tmp_path / RESULT).exists()
    assert found["size_growth"] == 1.0


def test_recorded_rewrites_are_replayed_without_measuring(tower: str, tmp_path: Path, monkeypatch: Any) -> None:
    from agents.conclusion.recordings import recording_of
    from agents.core.base import Budget
    from agents.core.registry import make_agent
    from benchmarks.protocol.searches.replaying import replayed_result
    from graph_rewrite.replay.memory import ResultMemory
    from graph_rewrite.replay.remembered import RememberedResult
    from graph_rewrite.task.problem import open_problem

    problem: Problem = open_problem(tower, provider="cpu", meter=count_operators)
    found = make_agent("greedy").optimize(problem, Budget(50, 30.0))
    memory = ResultMemory(tmp_path / "memory")
    assert memory.remember(RememberedResult(recording_of(problem, found.actions, found.graph), 1.5, 60.0, {}))
    fresh: Problem = open_problem(tower, provider="cpu", meter=count_operators)
    result = replayed_result(fresh, memory)
    assert result.graph.hash == found.graph.hash
    assert result.verified
    assert result.measurements == 0
    assert fresh.measurements == 0
    assert "at other sizes" not in result.message
    wider: Problem = open_problem(
        str(write_tower(tmp_path / "wider.onnx", width=6)), provider="cpu", meter=count_operators
    )
    result = replayed_result(wider, memory)
    assert "at other sizes" in result.message
    assert len(result.actions) == len(found.actions)
    assert result.verified
    with pytest.raises(UserError, match="no result is recorded"):
        replayed_result(
            open_problem(str(write_tower(tmp_path / "taller.onnx", 5)), provider="cpu", meter=count_operators), memory
        )
