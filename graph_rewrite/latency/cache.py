"""Measurements kept on disk, shared by all processes of a user."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from graph_rewrite.latency.database import SharedDatabase, opened_read_only

Values = dict[str, Any]

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
        self._database = SharedDatabase(
            self.path, [_SCHEMA], title="measurement cache",
            consequence="Results stay right, only slower to get",
        )  # fmt: skip

    @property
    def off_because(self) -> str:
        """Return why the cache was turned off; empty while it works."""
        return self._database.off_because

    def get(self, *keys: Mapping[str, Any]) -> Values | None:
        """Return the values under the first of `keys` that is stored, or None."""

        def read(connection: sqlite3.Connection) -> Values | None:
            for key in keys:
                row = connection.execute("SELECT value FROM measurement WHERE key = ?", (_text(key),)).fetchone()
                if row is not None and (values := _decode(row[0])) is not None:
                    return values
            return None

        return self._database.attempt(read)

    def take_over(self, path: Path) -> None:
        """Add the entries of another file that are not here yet; none where it cannot be read."""
        with suppress(sqlite3.Error), closing(opened_read_only(path)) as other:
            rows = other.execute("SELECT key, value, taken FROM measurement").fetchall()
            self._database.attempt(lambda connection: _insert(connection, "IGNORE", rows))

    def put(self, key: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        """Store plain values; an older entry of the same key is replaced."""
        row = (_text(key), json.dumps(values), time.time())

        self._database.attempt(lambda connection: _insert(connection, "REPLACE", [row]))

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        self._database.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return MeasurementCache, (self.path,)


def _insert(connection: sqlite3.Connection, known: str, rows: Sequence[tuple[str, str, float]]) -> None:
    """Insert rows; what is done with those that are `known` is REPLACE or IGNORE."""
    with connection:
        connection.executemany(f"INSERT OR {known} INTO measurement VALUES (?, ?, ?)", rows)


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)


def _decode(text: str) -> Values | None:
    """Return the stored values; None for a row that this project did not write, which is then measured anew."""
    try:
        values = json.loads(text)
    except ValueError:
        return None
    return values if isinstance(values, dict) else None
