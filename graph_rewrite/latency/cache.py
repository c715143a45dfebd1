"""Measurements kept on disk, shared by all processes of a user."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from graph_rewrite.latency.lock import MachineLock

T = TypeVar("T")
Values = dict[str, Any]

_BUSY_TIMEOUT_S = 30.0
# Connections of a process that forked: SQLite must not even close them in the child.
_carried_over: list[sqlite3.Connection | None] = []
_SCHEMA = """CREATE TABLE IF NOT EXISTS measurement (key TEXT PRIMARY KEY, value TEXT NOT NULL, taken REAL NOT NULL)
             WITHOUT ROWID"""


def default_cache_path() -> Path:
    """Return `latency.sqlite3` in `$REWRITEGYM_CACHE`, by default `~/.cache/rewritegym`."""
    folder = os.environ.get("REWRITEGYM_CACHE")
    return (Path(folder) if folder else Path.home() / ".cache" / "rewritegym") / "latency.sqlite3"


class MeasurementCache:
    """A table of key -> plain values in an SQLite file, safe across processes and threads.

    A key is a mapping of all that a measurement depends on. A cache is a convenience, so no fault of it ends a run:
    a corrupt file is moved aside with a warning and a new one begun; a full disk, a missing permission or a lock
    held for half a minute turn the cache off for the rest of the run, with one warning.
    """

    def __init__(self, path: str | os.PathLike[str] | None = None) -> None:
        self.path = Path(path) if path is not None else default_cache_path()
        self.off_because = ""
        """Why the cache was turned off; empty while it works."""
        self._connection: sqlite3.Connection | None = None
        self._owner = os.getpid()
        self._mutex = threading.Lock()

    def get(self, *keys: Mapping[str, Any]) -> Values | None:
        """Return the values under the first of `keys` that is stored, or None."""

        def read(connection: sqlite3.Connection) -> Values | None:
            for key in keys:
                row = connection.execute("SELECT value FROM measurement WHERE key = ?", (_text(key),)).fetchone()
                if row is not None and (values := _decode(row[0])) is not None:
                    return values
            return None

        return self._do(read)

    def put(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Store plain values; an older entry of the same key is replaced."""
        row = (_text(key), json.dumps(values), time.time())

        def write(connection: sqlite3.Connection) -> None:
            with connection:
                connection.execute("INSERT OR REPLACE INTO measurement VALUES (?, ?, ?)", row)

        self._do(write)

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        self._leave_to_parent()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasurementCache, (self.path,)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `action`; None when the cache is, or now becomes, turned off."""
        self._leave_to_parent()
        with self._mutex:
            if self.off_because:
                return None
            try:
                try:
                    return action(self._open())
                except sqlite3.OperationalError:
                    raise
                except sqlite3.DatabaseError as error:
                    self.close()
                    self._replace_if_corrupt(error)
                    return action(self._open())
            except (sqlite3.Error, OSError) as error:
                self._turn_off(error)
                return None

    def _leave_to_parent(self) -> None:
        if self._owner != os.getpid():
            _carried_over.append(self._connection)
            self._mutex, self._connection, self._owner = threading.Lock(), None, os.getpid()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=_BUSY_TIMEOUT_S, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # A power cut may lose the newest entries, never the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    connection.execute(_SCHEMA)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _turn_off(self, error: Exception) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.close()
        self.off_because = str(error)
        self._warn(
            f"measurement cache {self.path} is off for this run: {error}. Results stay right, only slower to get"
        )

    def _replace_if_corrupt(self, error: Exception) -> None:
        """Move a corrupt file aside, once, although several processes may find it corrupt at the same time."""
        with MachineLock(self.path.with_name(self.path.name + ".lock"), timeout_s=_BUSY_TIMEOUT_S):
            if not _is_corrupt(self.path):
                return
            aside = self.path.with_name(f"{self.path.name}.corrupt-{time.time_ns()}")
            os.replace(self.path, aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._warn(f"measurement cache {self.path} was corrupt ({error}): moved to {aside.name}, a new one is begun")

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=5)


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _decode(text: str) -> Values | None:
    """Return the stored values; None for a row that this project did not write, which is then measured anew."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None


def _is_corrupt(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=_BUSY_TIMEOUT_S)) as connection:
            return bool(connection.execute("PRAGMA quick_check").fetchone()[0] != "ok")
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        return True
