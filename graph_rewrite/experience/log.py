"""The log of one search: what it times goes into the store, cheaply, and no fault of that ends the search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from graph_rewrite.experience.records import LabelRow, SharedPart
from graph_rewrite.experience.store import ExperienceStore, default_store_path

MOST_PENDING = 32
"""Labels that wait to be written together."""
FLUSH_S = 5.0
"""Seconds that a label waits at most for the next one: a process that is killed loses these."""


class ExperienceLog:
    """Collects labels and appends them to a store, a few at a time; used within a `with` block.

    Args:
        store: where they go; None for nowhere.
        clock: seconds of a monotonic clock.
    """

    def __init__(self, store: ExperienceStore | None, clock: Callable[[], float] = time.monotonic) -> None:
        self.store, self._clock = store, clock
        self.labels = 0
        """Labels that were logged."""
        self.cpu_s = 0.0
        """Seconds of processor time that describing and writing them took."""
        self._labels: list[LabelRow] = []
        self._parts: dict[str, SharedPart] = {}
        self._written: dict[str, SharedPart] = {}
        self._flushed = clock()

    @classmethod
    def default(cls) -> ExperienceLog:
        """Return a log that appends to the user's store, or to none where that is turned off."""
        path = default_store_path()
        return cls(None if path is None else ExperienceStore(path))

    @property
    def is_on(self) -> bool:
        """True while labels are wanted."""
        return self.store is not None and not self.store.off_because

    @contextmanager
    def timing(self) -> Iterator[None]:
        """Count the processor time of the block as that of logging."""
        begin = time.thread_time()
        try:
            yield
        finally:
            self.cpu_s += time.thread_time() - begin

    def add(self, label: LabelRow, parts: Iterable[SharedPart]) -> None:
        """Append a label with the parts that it and its place refer to."""
        if not self.is_on:
            return
        self.labels += 1
        self._labels.append(label)
        for part in parts:
            name = part.id
            if name not in self._written:
                self._parts[name] = part
        if len(self._labels) >= MOST_PENDING or self._clock() - self._flushed >= FLUSH_S:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._labels and self.store is not None:
            shrunk = self.store.shrunk
            if self.store.append(self._labels, self._parts.values()):
                self._written |= self._parts
            if self.store.shrunk > shrunk:  # parts that old labels alone named are gone, whoever dropped these
                self.store.append(self._labels, self._written.values())
        self._labels, self._parts, self._flushed = [], {}, self._clock()

    def close(self) -> None:
        """Write what waits, and close the store."""
        with self.timing():
            self.flush()
        if self.store is not None:
            self.store.close()
