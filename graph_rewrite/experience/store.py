"""The store of experience: an SQLite file to which searches append what windows cost, and which nothing changes after.

Several processes append at once, and one that is killed leaves every committed row and no broken file: SQLite's
write-ahead log does both, and a column file such as Parquet neither. No row holds anything but text.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TypeVar

from graph_rewrite.errors import UserError
from graph_rewrite.experience.records import SCHEMA_VERSION, Label, LabelRow, SharedPart, complete
from graph_rewrite.latency.cache import default_cache_path
from graph_rewrite.latency.database import SharedDatabase, opened_read_only

T = TypeVar("T")

EXPERIENCE = "REWRITEGYM_EXPERIENCE"
"""Environment variable: `off`, or the file to append to."""
MOST_BYTES = 256 << 20
"""Bytes of the file above which the oldest labels are dropped."""
KEPT = 0.8
"""Share of the labels that are left then."""
LOOK_EVERY = 256
"""Appended labels after which the size is looked at."""

_SCHEMA = (
    """CREATE TABLE IF NOT EXISTS part (id TEXT PRIMARY KEY, kind TEXT NOT NULL, body TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE IF NOT EXISTS label (id TEXT PRIMARY KEY, taken INTEGER NOT NULL, body TEXT NOT NULL,
       checksum TEXT NOT NULL) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS by_time ON label (taken)",
    "CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID",
    f"INSERT OR IGNORE INTO about VALUES ('schema', {SCHEMA_VERSION})",
)
_ADD_LABEL = """INSERT INTO label VALUES (?, ?, ?, ?) ON CONFLICT (id) DO UPDATE
                SET taken = excluded.taken, checksum = excluded.checksum WHERE excluded.taken < label.taken"""

_COUNT_SHRUNK = "INSERT INTO about VALUES ('shrunk', 1) ON CONFLICT (name) DO UPDATE SET value = value + 1"


class NewerSchemaError(sqlite3.OperationalError):
    """The file was written by a later version of RewriteGym."""


def default_store_path() -> Path | None:
    """Return the file that searches append to: that of `$REWRITEGYM_EXPERIENCE`, by default `experience.sqlite3` beside
    the measurement cache; None where the variable says `off`."""
    given = os.environ.get(EXPERIENCE, "").strip()
    if given.lower() in ("off", "0", "no", "false"):
        return None
    return Path(given) if given else default_cache_path().with_name("experience.sqlite3")


class ExperienceStore:
    """Labels and their parts in an SQLite file, safe across processes and threads.

    Rows are only ever added, but for the oldest labels of a file that has grown too large. `append` never fails: a
    fault turns the store off for the rest of the run, with one warning. Everything else says what is wrong.

    Args:
        path: the file.
        most_bytes: its size above which the oldest labels go.
        busy_timeout_s: seconds to wait while another process writes.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, most_bytes: int = MOST_BYTES, busy_timeout_s: float = 5.0
    ) -> None:
        self.path, self.most_bytes = Path(path), most_bytes
        self._database = SharedDatabase(
            path, _SCHEMA, title="the store of experience", consequence="The search goes on and nothing is logged",
            busy_timeout_s=busy_timeout_s,
        )  # fmt: skip
        self._appended = 0
        self.shrunk = 0
        """How often any process has dropped old labels, and parts that no label names any more, as of the last
        `append`."""

    @property
    def off_because(self) -> str:
        """The reason why `append` does nothing any more; empty while it works."""
        return self._database.off_because

    def append(self, labels: Iterable[LabelRow], parts: Iterable[SharedPart]) -> bool:
        """Add labels and the parts they refer to, all or none. Return False where the store is off."""
        rows, shared = list(labels), list(parts)

        def write(connection: sqlite3.Connection) -> bool:
            _insert(connection, rows, shared)
            self._appended += len(rows)
            if self._appended >= LOOK_EVERY:
                self._appended = 0
                _shrink(connection, self.most_bytes)
            self.shrunk = _shrunk(connection)
            return True

        return self._database.attempt(write) is not None

    def merge(self, labels: Iterable[LabelRow], parts: Iterable[SharedPart]) -> int:
        """Add labels and parts, all or none; what is there already stays. Return the number of labels that were new.

        Raises:
            UserError: the file cannot be written, or is of a later version.
        """
        rows, shared = list(labels), list(parts)

        def write(connection: sqlite3.Connection) -> int:
            before = _count(connection)
            _insert(connection, rows, shared)
            return _count(connection) - before

        return self._asked(write)

    def rows(self) -> tuple[list[LabelRow], list[SharedPart], int]:
        """Return all labels and parts in the order of their ids, and the number of rows that are damaged, which are
        left out.

        Raises:
            UserError: there is no such file, it cannot be read, or is of a later version.
        """
        if not self.path.is_file():
            raise UserError(f"{self.path}: there is no store of experience; a search of the agent regional begins one")
        return self._asked(_read)

    def count(self) -> int:
        """Return the number of labels, damaged ones included.

        Raises:
            UserError: as for `rows`.
        """
        return self._asked(_count)

    def labels(self) -> Iterator[Label]:
        """Yield all labels with their parts, in the order of their ids; damaged ones are left out.

        Raises:
            UserError: as for `rows`.
        """
        rows, parts, _ = self.rows()
        yield from complete(iter(rows), {part.id: json.loads(part.text) for part in parts})

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        self._database.close()

    def _asked(self, action: Callable[[sqlite3.Connection], T]) -> T:
        def checked(connection: sqlite3.Connection) -> T:
            _check_schema(connection)
            return action(connection)

        try:
            return self._database.run(checked)
        except (sqlite3.Error, OSError) as error:
            raise UserError(f"{self.path}: the store of experience cannot be used: {error}") from error


def stored_rows(path: Path) -> tuple[list[LabelRow], list[SharedPart], int]:
    """Return what `ExperienceStore.rows` does of a file that is only read: one that is damaged, or of another program,
    stays as it is.

    Raises:
        UserError: there is no such file, it is no store, it is damaged, or of a later version.
    """
    try:
        with closing(opened_read_only(path)) as connection:
            _check_schema(connection)
            return _read(connection)
    except sqlite3.Error as error:
        raise UserError(f"{path}: this is no store of experience, or it is damaged: {error}") from error


def check_store(path: Path) -> None:
    """Check that rows may be added to a file: there is none yet, it is empty, or it is a store.

    Raises:
        UserError: it is something else, damaged, or of a later version.
    """
    try:
        if not path.exists() or path.stat().st_size == 0:
            return
        with closing(opened_read_only(path)) as connection:
            _check_schema(connection)
    except (sqlite3.Error, OSError) as error:
        raise UserError(
            f"{path}: this is no store of experience, or it is damaged: {error}; name another file"
        ) from error


def _check_schema(connection: sqlite3.Connection) -> None:
    row = connection.execute("SELECT value FROM about WHERE name = 'schema'").fetchone()
    if row is not None and row[0] > SCHEMA_VERSION:
        raise NewerSchemaError(
            f"it has version {row[0]} of the schema, this RewriteGym reads up to {SCHEMA_VERSION}: update RewriteGym"
        )


def _insert(connection: sqlite3.Connection, labels: list[LabelRow], parts: list[SharedPart]) -> None:
    with connection:
        _check_schema(connection)
        connection.executemany(
            "INSERT OR IGNORE INTO part VALUES (?, ?, ?)", [(part.id, part.kind, part.text) for part in parts]
        )
        connection.executemany(_ADD_LABEL, [(row.id, row.taken, row.text, row.check) for row in labels])


def _count(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT count(*) FROM label").fetchone()[0])


def _read(connection: sqlite3.Connection) -> tuple[list[LabelRow], list[SharedPart], int]:
    damaged, labels, parts = 0, list[LabelRow](), list[SharedPart]()
    with closing(connection.cursor()) as cursor:
        for name, kind, text in cursor.execute("SELECT id, kind, body FROM part ORDER BY kind, id"):
            part = SharedPart(str(kind), str(text))
            if part.id == name:
                parts.append(part)
            else:
                damaged += 1
        for name, taken, text, check in cursor.execute("SELECT id, taken, body, checksum FROM label ORDER BY id"):
            row = LabelRow(str(text), taken)
            if row.id == name and row.check == check:
                labels.append(row)
            else:
                damaged += 1
    return labels, parts, damaged


def _shrunk(connection: sqlite3.Connection) -> int:
    row = connection.execute("SELECT value FROM about WHERE name = 'shrunk'").fetchone()
    return 0 if row is None else int(row[0])


def _shrink(connection: sqlite3.Connection, most_bytes: int) -> None:
    """Drop the oldest labels, and the parts that no label names any more, where the file is too large. Their pages are
    used again, so that the file does not grow."""
    pages, free, size = (
        connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
    )
    if (pages - free) * size <= most_bytes:
        return
    with connection:
        dropped = int(_count(connection) * (1.0 - KEPT))
        oldest = "SELECT id FROM label ORDER BY taken, id LIMIT ?"
        connection.execute(f"DELETE FROM label WHERE id IN ({oldest})", (dropped,))
        named = set[str]()
        for (text,) in connection.execute("SELECT body FROM label"):
            with suppress(ValueError, KeyError):  # a damaged row names nothing
                named.update(LabelRow(text, 0).parts())
        for name, text in connection.execute("SELECT id, body FROM part WHERE kind = 'place'").fetchall():
            if name in named:
                with suppress(ValueError, KeyError):
                    body = json.loads(text)
                    named.update((body["window"], body["model"]))
        gone = [(name,) for (name,) in connection.execute("SELECT id FROM part").fetchall() if name not in named]
        connection.executemany("DELETE FROM part WHERE id = ?", gone)
        connection.execute(_COUNT_SHRUNK)
