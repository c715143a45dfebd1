"""The number of threads that is taken where none is asked for."""

import os
from pathlib import Path

import pytest

from graph_rewrite.system import cpu_count
from graph_rewrite.system.cpu_count import available_cores, physical_cores


@pytest.fixture
def four_logical_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores of two threads each."""
    for cpu, siblings in enumerate(("0,2", "1,3", "0,2", "1,3")):
        told = tmp_path / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        told.parent.mkdir(parents=True)
        told.write_text(f"{siblings}\n")
    monkeypatch.setattr(cpu_count, "_CPUS", tmp_path)


@pytest.mark.usefixtures("four_logical_cores")
@pytest.mark.parametrize(("usable", "physical"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({0, 1}, 2), ({3}, 1)])
def test_threads_that_share_a_core_count_once(usable: set[int], physical: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: usable, raising=False)
    assert (physical_cores(), available_cores()) == (physical, len(usable))


def test_where_the_system_does_not_tell_each_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_count, "_CPUS", tmp_path)
    assert physical_cores() == available_cores()
