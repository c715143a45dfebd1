"""Ctrl-C and SIGTERM end a search, not the program: what was found so far is checked and written."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from rich.console import Console

from agents.core.base import Search

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_SAME_S = 1.0
"""A signal so soon after the first is the same wish: shells and process managers signal a process and its group."""

Handler = Callable[[int, FrameType | None], None]


class SearchWatch:
    """Called with the progress of a search: knows the one under way, and ends it once a signal has come."""

    def __init__(self) -> None:
        self.asked_at: float | None = None
        """When the first signal came, by `time.monotonic`."""
        self._search: Search | None = None

    @property
    def interrupted(self) -> bool:
        """True once a signal has come: no further search should begin."""
        return self.asked_at is not None

    def __call__(self, search: Search) -> None:
        self._search = search
        if self.interrupted and not search.ended:
            search.end()

    def interrupt(self) -> None:
        """End the search under way; one that has told nothing yet ends when it does."""
        self.asked_at = time.monotonic()
        if self._search is not None:
            self._search.end()


@contextmanager
def ending_search(console: Console) -> Iterator[SearchWatch]:
    """Let the first Ctrl-C or SIGTERM end the search that is under way, and the second stop the program.

    Yields what is to be called with the progress of each search.
    """
    watch = SearchWatch()

    def handle(number: int, frame: FrameType | None) -> None:
        if watch.asked_at is None:
            watch.interrupt()
            console.print("ending the search: its best result is checked and written; interrupt again to stop at once")
        elif time.monotonic() - watch.asked_at > _SAME_S:
            raise KeyboardInterrupt

    with _handling(handle, _SIGNALS):
        yield watch


@contextmanager
def interrupting_on_term() -> Iterator[None]:
    """Let SIGTERM do what Ctrl-C does: raise KeyboardInterrupt."""

    def handle(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handling(handle, (signal.SIGTERM,)):
        yield


@contextmanager
def _handling(handler: Handler, numbers: tuple[signal.Signals, ...]) -> Iterator[None]:
    """Install a handler; only the main thread can, and in others nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, known in before.items():
            signal.signal(number, known)
