"""The disk cache, and what becomes of a run when it breaks."""

import multiprocessing
import os
import pickle
import sqlite3
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graph_rewrite.latency import MeasurementCache, default_cache_path

KEY = {"graph": "a", "plan": 1}


def _fill(cache: MeasurementCache, name: str) -> None:
    for number in range(20):
        cache.put({"name": name, "number": number}, {"value": number})


def _fill_without_warnings(cache: MeasurementCache, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _fill(cache, name)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deeper" / "latency.sqlite3"


def test_keeps_values_across_instances(path: Path) -> None:
    MeasurementCache(path).put(KEY, {"ms": 1.25})
    cache = MeasurementCache(path)
    assert cache.get(KEY) == {"ms": 1.25}
    assert cache.get({"plan": 1, "graph": "a"}) == {"ms": 1.25}
    assert cache.get({**KEY, "plan": 2}) is None
    cache.put(KEY, {"ms": 2.0})
    assert cache.get(KEY) == {"ms": 2.0}


def test_first_key_that_is_known_answers(path: Path) -> None:
    cache = MeasurementCache(path)
    cache.put({"effort": "screen"}, {"ms": 1})
    assert cache.get({"effort": "full"}, {"effort": "screen"}) == {"ms": 1}
    cache.put({"effort": "full"}, {"ms": 2})
    assert cache.get({"effort": "full"}, {"effort": "screen"}) == {"ms": 2}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=4))
def test_any_plain_values(path: Path, values: dict[str, Any]) -> None:
    cache = MeasurementCache(path)
    cache.put({"key": values}, values)
    assert cache.get({"key": values}) == values
    cache.close()


@pytest.mark.parametrize(
    "garbage", [b"this is no database, however long " * 200, b"SQLite format 3\0" + b"\xff" * 4000]
)
def test_corrupt_file_is_moved_aside(path: Path, garbage: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(garbage)
    cache = MeasurementCache(path)
    with pytest.warns(RuntimeWarning, match=r"was corrupt .*moved to latency\.sqlite3\.corrupt-\d+"):
        assert cache.get(KEY) is None
    (aside,) = path.parent.glob("latency.sqlite3.corrupt-*")
    assert aside.read_bytes() == garbage
    cache.put(KEY, {"ms": 3})
    assert MeasurementCache(path).get(KEY) == {"ms": 3}
    assert not cache.off_because


def test_corruption_found_later_is_repaired_too(path: Path) -> None:
    cache = MeasurementCache(path)
    for number in range(300):
        cache.put({"number": number}, {"text": "x" * 100})
    cache.close()
    content = bytearray(path.read_bytes())
    content[4096:-4096] = b"\x13" * (len(content) - 8192)
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="was corrupt"):
        assert [cache.get({"number": number}) for number in range(300)].count(None) > 0
    cache.put(KEY, {"ms": 1})
    assert cache.get(KEY) == {"ms": 1}


def test_full_disk_turns_it_off_with_one_warning(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = original(*arguments, **options)
        connection.execute("PRAGMA max_page_count = 4")
        return connection

    original: Callable[..., sqlite3.Connection] = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", connect)
    cache = MeasurementCache(path)
    with pytest.warns(RuntimeWarning, match="off for this run: database or disk is full") as caught:
        _fill(cache, "x" * 1000)
    assert len(caught) == 1
    assert "full" in cache.off_because
    first = {"name": "x" * 1000, "number": 0}
    assert cache.get(first) is None
    monkeypatch.undo()
    # What was written before the disk was full is intact.
    assert MeasurementCache(path).get(first) == {"value": 0}


def test_a_place_that_cannot_be_written_turns_it_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    cache = MeasurementCache(tmp_path / "file" / "latency.sqlite3")
    with pytest.warns(RuntimeWarning, match="off for this run"):
        cache.put(KEY, {"ms": 1})
    assert cache.get(KEY) is None


def test_a_damaged_row_counts_as_unknown(path: Path) -> None:
    cache = MeasurementCache(path)
    cache.put(KEY, {"ms": 1})
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE measurement SET value = '{oops'")
    connection.close()
    assert cache.get(KEY) is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_many_processes_write_at_once(path: Path) -> None:
    cache = MeasurementCache(path)
    cache.put(KEY, {"ms": 1})  # opened before the fork
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=_fill_without_warnings, args=(cache, name)) for name in "abc"]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0, 0, 0]
    for name in "abc":
        assert all(cache.get({"name": name, "number": number}) == {"value": number} for number in range(20))


def test_pickles(path: Path) -> None:
    cache = MeasurementCache(path)
    cache.put(KEY, {"ms": 1})
    assert pickle.loads(pickle.dumps(cache)).get(KEY) == {"ms": 1}


def test_default_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REWRITEGYM_CACHE", str(tmp_path))
    assert default_cache_path() == tmp_path / "latency.sqlite3"
    monkeypatch.delenv("REWRITEGYM_CACHE")
    assert default_cache_path() == Path.home() / ".cache" / "rewritegym" / "latency.sqlite3"


def test_takes_over_what_another_has(path: Path) -> None:
    other, cache = MeasurementCache(path.with_name("other.sqlite3")), MeasurementCache(path)
    for name, value in (("a", 1), ("b", 2)):
        other.put({"name": name}, {"value": value})
    cache.put({"name": "b"}, {"value": 3})
    cache.take_over(other.path)
    assert [cache.get({"name": name}) for name in "ab"] == [{"value": 1}, {"value": 3}]
    other.close()
    other.path.write_bytes(b"no database")
    cache.take_over(other.path)
    assert cache.off_because == ""
    assert cache.get({"name": "a"}) == {"value": 1}
