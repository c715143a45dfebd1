"""The store of experience: appended to by many, changed by nobody, and no reason for a search to fail."""

import multiprocessing
import os
import signal
import sqlite3
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graph_rewrite.errors import UserError
from graph_rewrite.experience import ExperienceLog, ExperienceStore, default_store_path
from tests.graph_rewrite.experience.rows import made_up


def test_labels_come_back_with_all_they_refer_to(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "deeper" / "x.sqlite3")
    row, parts = made_up(rules=("A", "B"), family="bert", saved=2e-3)
    assert store.append([row], parts)
    (label,) = store.labels()
    assert label.rules == ("A", "B")
    assert label.family == "bert"
    assert label.window["nodes"][0]["op"] == "Relu"
    assert label.share_of_model == pytest.approx(0.2)
    assert label.window_s == pytest.approx(2e-3)
    assert label.share_of_window == pytest.approx(0.5)
    assert label.half_of_model == pytest.approx(0.01)


def test_the_same_timing_again_is_the_same_label(tmp_path: Path) -> None:
    store = ExperienceStore(tmp_path / "x.sqlite3")
    for taken in (1000, 2000, 500):
        row, parts = made_up(taken=taken)
        store.append([row], parts)
    (label,) = store.labels()
    assert label.taken == 500


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE label SET body = replace(body, '\"runs\":5', '\"runs\":6')",
        "UPDATE label SET taken = 7",
        "UPDATE part SET body = replace(body, 'Relu', 'Tanh') WHERE kind = 'window'",
    ],
)
def test_changed_rows_are_noticed(tmp_path: Path, change: str) -> None:
    store = ExperienceStore(tmp_path / "x.sqlite3")
    row, parts = made_up()
    store.append([row], parts)
    store.close()
    with sqlite3.connect(store.path) as connection:
        assert connection.execute(change).rowcount == 1
    connection.close()
    assert store.rows()[2] == 1
    assert list(store.labels()) == []


def test_a_corrupt_file_is_moved_aside_and_the_next_search_logs(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    path.write_bytes(b"SQLite format 3\0" + b"\xff" * 4000)
    store, (row, parts) = ExperienceStore(path), made_up()
    with pytest.warns(RuntimeWarning, match=r"store of experience .* was corrupt .*moved to x\.sqlite3\.corrupt-"):
        assert store.append([row], parts)
    assert len(list(store.labels())) == 1


def _fill(log: ExperienceLog) -> None:
    for number in range(200):
        log.add(*made_up(number))
    log.close()


def test_a_full_disk_is_one_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = original(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 12")
        return connection

    original: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    log = ExperienceLog(ExperienceStore(tmp_path / "x.sqlite3"), clock=iter(range(0, 10**6, 10)).__next__)
    with pytest.warns(RuntimeWarning, match="disk is full. The search goes on") as caught:
        _fill(log)
    assert len(caught) == 1
    assert not log.is_on


def test_a_place_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store, (row, parts) = ExperienceStore(tmp_path / "file" / "x.sqlite3"), made_up()
    with pytest.warns(RuntimeWarning, match="off for this run"):
        assert not store.append([row], parts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not store.append([row], parts)


def test_a_file_of_a_later_version_is_left_alone(tmp_path: Path) -> None:
    store, (row, parts) = ExperienceStore(tmp_path / "x.sqlite3"), made_up()
    store.append([row], parts)
    store.close()
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE about SET value = 99")
    connection.close()
    later, (other, more) = ExperienceStore(store.path), made_up(1)
    with pytest.warns(RuntimeWarning, match="version 99 of the schema"):
        assert not later.append([other], more)
    with pytest.raises(UserError, match="update RewriteGym"):
        list(later.labels())
    with sqlite3.connect(store.path) as connection:
        assert connection.execute("SELECT count(*) FROM label").fetchone() == (1,)
    connection.close()


def test_the_size_stays_bounded_and_the_latest_stay(tmp_path: Path) -> None:
    bounded = ExperienceStore(tmp_path / "x.sqlite3", most_bytes=600_000)
    for begin in range(0, 4096, 64):
        pairs = [made_up(number, taken=number, shape=(1, number + 1)) for number in range(begin, begin + 64)]
        assert bounded.append([row for row, _ in pairs], [part for _, parts in pairs for part in parts])
    labels = list(bounded.labels())
    bounded.close()
    assert bounded.path.stat().st_size < 2 * 600_000
    # Every label that is left has all its parts, and the newest are among them.
    assert 100 < len(labels) < 4096
    assert {label.taken for label in labels} == set(range(4096 - len(labels), 4096))


def _append(path: Path, begin: int, end: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        store = ExperienceStore(path, busy_timeout_s=60.0)
        for number in range(begin, end):
            row, parts = made_up(number)
            assert store.append([row], parts)
        store.close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_many_processes_append_at_once(tmp_path: Path) -> None:
    path, context = tmp_path / "x.sqlite3", multiprocessing.get_context("fork")
    children = [context.Process(target=_append, args=(path, begin, begin + 30)) for begin in (0, 20, 40)]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert sorted(label.place["number"] for label in ExperienceStore(path).labels()) == list(range(70))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_killed_process_leaves_nothing_broken(tmp_path: Path) -> None:
    path = tmp_path / "x.sqlite3"
    child = multiprocessing.get_context("fork").Process(target=_append, args=(path, 0, 10**6))
    child.start()
    reader = ExperienceStore(path)
    limit = time.monotonic() + 30.0
    while not path.exists() or not list(reader.labels()):
        assert time.monotonic() < limit
        time.sleep(0.01)
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    numbers = sorted(label.place["number"] for label in reader.labels())
    assert numbers == list(range(len(numbers)))
    assert reader.rows()[2] == 0
    row, parts = made_up(10**7)
    assert reader.append([row], parts)


def test_labels_are_written_together_and_in_time(tmp_path: Path) -> None:
    now = 0.0
    log = ExperienceLog(store := ExperienceStore(tmp_path / "x.sqlite3"), clock=lambda: now)
    log.add(*made_up(0))
    assert not store.path.exists()
    now = 6.0
    log.add(*made_up(1))
    assert len(list(store.labels())) == 2
    for number in range(2, 33):
        log.add(*made_up(number))
    assert len(list(store.labels())) == 2
    log.add(*made_up(33))
    assert len(list(store.labels())) == 34
    log.add(*made_up(34))
    log.close()
    assert len(list(store.labels())) == 35


def test_the_file_is_where_the_user_wants_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path))
    monkeypatch.delenv("REWRITEGYM_EXPERIENCE", raising=False)
    assert default_store_path() == tmp_path / "experience.sqlite3"
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", str(tmp_path / "mine.sqlite3"))
    assert default_store_path() == tmp_path / "mine.sqlite3"
    monkeypatch.setenv("REWRITEGYM_EXPERIENCE", "off")
    assert default_store_path() is None
    assert not ExperienceLog.default().is_on


def test_a_window_that_was_dropped_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graph_rewrite.experience.store.LOOK_EVERY", 64)
    log = ExperienceLog(ExperienceStore(tmp_path / "x.sqlite3", most_bytes=100_000))
    assert log.store is not None
    log.add(*made_up(0, taken=0, shape=(1, 1)))
    for number in range(1, 1024):
        log.add(*made_up(number, taken=number, shape=(1, number + 1)))
    assert log.store.shrunk
    assert min(label.taken for label in log.store.labels()) > 0
    log.add(*made_up(5000, taken=5000, shape=(1, 1)))
    log.close()
    assert max(label.taken for label in log.store.labels()) == 5000


def test_a_window_that_another_process_dropped_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ExperienceLog(ExperienceStore(tmp_path / "x.sqlite3"))
    assert log.store is not None
    log.add(*made_up(0, taken=0, shape=(1, 1)))
    log.flush()
    monkeypatch.setattr("graph_rewrite.experience.store.LOOK_EVERY", 1024)
    other = ExperienceStore(log.store.path, most_bytes=100_000)
    pairs = [made_up(number, taken=number, shape=(1, number + 1)) for number in range(1, 1025)]
    assert other.append([row for row, _ in pairs], [part for _, parts in pairs for part in parts])
    assert min(label.taken for label in other.labels()) > 0
    log.add(*made_up(5000, taken=5000, shape=(1, 1)))
    log.close()
    assert max(label.taken for label in other.labels()) == 5000
