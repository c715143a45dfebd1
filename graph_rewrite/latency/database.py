"""SQLite files that all processes of a user share, and that no fault of theirs may end a run."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from graph_rewrite.latency.lock import MachineLock

T = TypeVar("T")

BUSY_TIMEOUT_S = 30.0
"""Seconds for which a process waits while others write."""
# Connections of a process that forked: SQLite must not even close them in the child.
_carried_over: list[sqlite3.Connection | None] = []


class SharedDatabase:
    """An SQLite file that processes and threads read and write at once.

    A write-ahead log keeps the file whole where a process is killed. A corrupt file is moved aside with a warning and a
    new one begun.

    Args:
        path: the file; it and its folder are made when first needed.
        schema: statements that make the tables, if there are none yet.
        title: the noun phrase by which messages call it.
        consequence: a sentence that follows when `attempt` turns the file off.
        busy_timeout_s: seconds to wait while another process writes.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        schema: Sequence[str],
        *,
        title: str,
        consequence: str,
        busy_timeout_s: float = BUSY_TIMEOUT_S,
    ) -> None:
        self.path, self.schema = Path(path), tuple(schema)
        self.title, self.consequence, self.busy_timeout_s = title, consequence, busy_timeout_s
        self.off_because = ""
        """The reason why `attempt` turned the file off; empty while it works."""
        self._connection: sqlite3.Connection | None = None
        self._owner = os.getpid()
        self._mutex = threading.Lock()

    def attempt(self, action: Callable[[sqlite3.Connection], T]) -> T | None:
        """Run `action`; None once the file is turned off. A full disk, a missing permission or a lock that is held too
        long turn it off for the rest of the run, with one warning."""
        self._leave_to_parent()
        with self._mutex:
            if self.off_because:
                return None
            try:
                return self._repaired(action)
            except (sqlite3.Error, OSError) as error:
                self._turn_off(error)
                return None

    def run(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run `action` and return what it does.

        Raises:
            sqlite3.Error: the file cannot be read or written.
            OSError: its folder cannot be made.
        """
        self._leave_to_parent()
        with self._mutex:
            return self._repaired(action)

    def close(self) -> None:
        """Close the file; a later use opens it again."""
        self._leave_to_parent()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _repaired(self, action: Callable[[sqlite3.Connection], T]) -> T:
        try:
            return action(self._open())
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            self.close()
            self._replace_if_corrupt(error)
            return action(self._open())

    def _leave_to_parent(self) -> None:
        if self._owner != os.getpid():
            _carried_over.append(self._connection)
            self._mutex, self._connection, self._owner = threading.Lock(), None, os.getpid()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self.path, timeout=self.busy_timeout_s, check_same_thread=False)
            try:
                connection.execute("PRAGMA journal_mode = WAL")
                # A power cut may lose the newest entries, never the file.
                connection.execute("PRAGMA synchronous = NORMAL")
                with connection:
                    for statement in self.schema:
                        connection.execute(statement)
            except BaseException:
                connection.close()
                raise
            self._connection = connection
        return self._connection

    def _turn_off(self, error: Exception) -> None:
        with contextlib.suppress(sqlite3.Error):
            self.close()
        self.off_because = str(error)
        self._warn(f"{self.title} {self.path} is off for this run: {error}. {self.consequence}")

    def _replace_if_corrupt(self, error: Exception) -> None:
        """Move a corrupt file aside, once, although several processes may find it corrupt at the same time."""
        with MachineLock(self.path.with_name(self.path.name + ".lock"), timeout_s=BUSY_TIMEOUT_S):
            if not _is_corrupt(self.path):
                return
            aside = self.path.with_name(f"{self.path.name}.corrupt-{time.time_ns()}")
            os.replace(self.path, aside)
            for suffix in ("-wal", "-shm"):
                self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
        self._warn(f"{self.title} {self.path} was corrupt ({error}): moved to {aside.name}, a new one is begun")

    def _warn(self, text: str) -> None:
        warnings.warn(text, RuntimeWarning, stacklevel=6)


def opened_read_only(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that is not changed by it, whatever it is. Where the folder cannot be written,
    nobody changes the file meanwhile.

    Raises:
        sqlite3.Error: the file cannot be opened.
    """
    immutable = "" if os.access(path.absolute().parent, os.W_OK) else "&immutable=1"
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro{immutable}", uri=True, timeout=BUSY_TIMEOUT_S)


def _is_corrupt(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_TIMEOUT_S)) as connection:
            return bool(connection.execute("PRAGMA quick_check").fetchone()[0] != "ok")
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        return True
