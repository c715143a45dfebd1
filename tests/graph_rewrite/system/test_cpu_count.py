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


@pytest.mark.parametrize(
    ("own", "files", "cores"),
    [
        ("0::/\n", {"cpu.max": "250000 100000"}, 2),
        ("0::/\n", {"cpu.max": "50000 100000"}, 1),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/a/b\n", {"a/cpu.max": "300000 100000", "a/b/cpu.max": "max 100000"}, 3),
        (
            "4:cpu,cpuacct:/x\n",
            {"cpu,cpuacct/cpu.cfs_quota_us": "400000", "cpu,cpuacct/cpu.cfs_period_us": "99999"},
            4,
        ),
        ("1:cpu:/\n0::/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
        ("7:memory:/\n", {"cpu.max": "100000 100000"}, 8),
        ("", {"cpu.max": "100000 100000"}, 8),
    ],
)
def test_a_container_with_less_time_has_fewer_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: str, files: dict[str, str], cores: int
) -> None:
    for name, text in files.items():
        file = tmp_path / "groups" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{text}\n")
    (tmp_path / "own").write_text(own)
    monkeypatch.setattr(cpu_count, "_GROUPS", tmp_path / "groups")
    monkeypatch.setattr(cpu_count, "_OWN_GROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(cpu_count, "_CPUS", tmp_path)
    assert (available_cores(), physical_cores()) == (cores, cores)
