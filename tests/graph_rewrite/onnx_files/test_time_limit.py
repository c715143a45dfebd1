"""Reading and normalising end at the time limit of the run, and a model is read once."""

from pathlib import Path

import pytest

from graph_rewrite import load
from graph_rewrite.onnx_files import saving
from graph_rewrite.onnx_files.normalisation import normalise
from graph_rewrite.onnx_files.reading_once import load_once
from graph_rewrite.system import deadline
from graph_rewrite.system.deadline import OutOfTime, ending_at
from tests.envs.fakes import write_tower

LAYERS, NODES = 30, 180


@pytest.fixture
def tower(tmp_path: Path) -> Path:
    return write_tower(tmp_path / "tower.onnx", LAYERS)


def looks(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let the clock go on by a second whenever somebody looks at it."""
    now = [0.0]

    def tick() -> float:
        now[0] += 1.0
        return now[0]

    monkeypatch.setattr(deadline.time, "monotonic", tick)
    return now


def test_reading_is_broken_off(tower: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = looks(monkeypatch)
    for seconds in (NODES / 2, 1.5 * NODES, 2.5 * NODES):  # while operators are checked, made, and given types
        now[0] = 0.0
        with ending_at(seconds), pytest.raises(OutOfTime):
            load(tower)
        assert now[0] <= seconds + 1.0


def test_normalising_is_broken_off(tower: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graph, now = load(tower), looks(monkeypatch)
    with ending_at(NODES / 2), pytest.raises(OutOfTime):
        normalise(graph)
    assert now[0] <= NODES / 2 + 1.0


def test_a_file_is_read_once_until_it_changes(tower: Path) -> None:
    first = load_once(tower)
    assert load_once(tower) is first
    assert first.hash == load(tower).hash
    write_tower(tower, LAYERS + 1)
    assert load_once(tower) is not first
    assert load_once(tower).hash == load(tower).hash


def test_writing_weights_is_broken_off_and_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = load(write_tower(tmp_path / "wide.onnx", 1, 64))
    monkeypatch.setattr(saving, "_SMALLEST_SHARED", 0)
    monkeypatch.setattr(saving, "_PIECE", 1000)  # of 16,384 bytes
    now = looks(monkeypatch)
    with ending_at(8.0), pytest.raises(OutOfTime):
        saving.materialize(graph, tmp_path / "work")
    assert now[0] <= 9.0
    assert not [path for path in (tmp_path / "work").glob("**/*") if path.is_file()]
    monkeypatch.undo()
    assert load(saving.materialize(graph, tmp_path / "work")).hash == graph.hash
